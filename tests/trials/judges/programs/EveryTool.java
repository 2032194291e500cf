import java.io.*;
import java.lang.reflect.*;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.*;
import java.util.*;
import java.util.stream.*;

/**
 * Kafka's command-line tools, one after another in one virtual machine, each run by its `main`.
 *
 * Arguments: the folder of the jars, and a folder with files N.line (a class and its arguments, one a line)
 * and N.given (its standard input). N.out, N.err and N.status are written. Each tool is loaded anew, for some
 * count in static fields.
 */
public class EveryTool {
    /** The end of a tool. */
    static class Exit extends Error {
        final int status;

        Exit(int status) {
            super("exit", null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] args) throws Exception {
        URL[] jars;
        try (Stream<Path> files = Files.list(Path.of(args[0]))) {
            jars = files.filter(it -> it.toString().endsWith(".jar")).map(EveryTool::url).toArray(URL[]::new);
        }
        for (int n = 0; Files.exists(file(args[1], n, "line")); n++) {
            List<String> words = Files.readAllLines(file(args[1], n, "line"));
            try (PrintStream out = new PrintStream(Files.newOutputStream(file(args[1], n, "out")), true);
                 PrintStream err = new PrintStream(Files.newOutputStream(file(args[1], n, "err")), true);
                 InputStream in = Files.newInputStream(file(args[1], n, "given"));
                 URLClassLoader loader = new URLClassLoader(jars, ClassLoader.getPlatformClassLoader())) {
                System.setIn(in);
                System.setOut(out);
                System.setErr(err);
                Thread.currentThread().setContextClassLoader(loader);
                int status = run(loader, words.get(0), words.subList(1, words.size()).toArray(String[]::new));
                Files.writeString(file(args[1], n, "status"), Integer.toString(status));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** The status with which the tool ends: the first, where it catches its own end and ends again. */
    static int run(ClassLoader loader, String program, String[] args) throws Exception {
        List<Integer> ends = new ArrayList<>();
        List<Runnable> hooks = new ArrayList<>();
        Class<?> exit;
        try {
            exit = loader.loadClass("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException before) {  // Before 4.4.
            exit = loader.loadClass("org.apache.kafka.common.utils.Exit");
        }
        InvocationHandler end = (proxy, method, given) -> {
            ends.add((Integer) given[0]);
            throw new Exit((Integer) given[0]);
        };
        for (String setter : List.of("setExitProcedure", "setHaltProcedure")) set(loader, exit, setter, "Procedure", end);
        set(loader, exit, "setShutdownHookAdder", "ShutdownHookAdder", (proxy, method, given) -> {
            hooks.add((Runnable) given[1]);
            return null;
        });
        try {
            loader.loadClass(program).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exit)) {
                error.getCause().printStackTrace();
                ends.add(1);
            }
        }
        for (Runnable hook : hooks) hook.run();
        return ends.isEmpty() ? 0 : ends.get(0);
    }

    static void set(ClassLoader loader, Class<?> exit, String setter, String kind, InvocationHandler handler) throws Exception {
        Class<?> type = loader.loadClass(exit.getName() + "$" + kind);
        exit.getMethod(setter, type).invoke(null, Proxy.newProxyInstance(loader, new Class<?>[] {type}, handler));
    }

    static Path file(String folder, int n, String kind) {
        return Path.of(folder, n + "." + kind);
    }

    static URL url(Path jar) {
        try {
            return jar.toUri().toURL();
        } catch (MalformedURLException error) {
            throw new IllegalArgumentException(error);
        }
    }
}
