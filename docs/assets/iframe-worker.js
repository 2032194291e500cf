// Browsers refuse workers to pages that were opened from the disk. The search gets one that runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.loaded = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      document.body.append(this.frame);
      const inside = this.frame.contentDocument;
      this.loaded = new Promise((resolve, reject) => {
        const script = inside.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        this.frame.contentWindow.postMessage = (data) =>
          this.dispatchEvent(new MessageEvent("message", { data }));
        this.frame.contentWindow.importScripts = () => Promise.resolve();
        inside.body.append(script);
      });
    }
    postMessage(data) {
      this.loaded.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
