// A test of kafka-go: it starts a cluster in memory, which ends with this process.
package shop

import (
	"bufio"
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
)

func TestAnOrderIsPaidOnce(t *testing.T) {
	cluster := exec.Command("eosdb", "serve", "--memory", "--print-address")
	output, err := cluster.StdoutPipe()
	if err != nil || cluster.Start() != nil {
		t.Fatal("eosdb does not start")
	}
	defer cluster.Process.Kill()
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(line)

	writer := &kafka.Writer{Addr: kafka.TCP(address), Topic: "payments", AllowAutoTopicCreation: true}
	order := kafka.Message{Key: []byte("order 42"), Value: []byte("paid")}
	if err := writer.WriteMessages(context.Background(), order); err != nil {
		t.Fatal(err)
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, Topic: "payments"})
	message, err := reader.ReadMessage(context.Background())
	if err != nil || string(message.Value) != "paid" {
		t.Fatal(string(message.Value), err)
	}
}
