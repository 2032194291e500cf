// Consume, process, produce with Sarama, exactly once, until SIGTERM.
//
// sarama_etl BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

type etl struct {
	servers       []string
	output, group string
	name          string
}

func (etl) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (etl) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// A producer for each claim: Sarama sends a transaction's offsets without the group's generation (no KIP-447), so that an
// id for each partition fences whoever had it before.
func (it etl) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = fmt.Sprintf("%s-%d", it.name, claim.Partition())
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(it.servers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for {
		var batch []*sarama.ConsumerMessage
		select {
		case first := <-claim.Messages():
			if first == nil {
				return nil
			}
			batch = append(batch, first)
		case <-session.Context().Done():
			return nil
		}
		for more := true; more && len(batch) < 100; {
			select {
			case next := <-claim.Messages():
				if next == nil {
					return nil
				}
				batch = append(batch, next)
			default:
				more = false
			}
		}
		if err := it.copy(producer, batch); err != nil {
			fmt.Println("anew after", err)
			_ = producer.AbortTxn()
			return err
		}
	}
}

func (it etl) copy(producer sarama.SyncProducer, batch []*sarama.ConsumerMessage) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	messages := make([]*sarama.ProducerMessage, len(batch))
	for i, one := range batch {
		messages[i] = &sarama.ProducerMessage{
			Topic: it.output, Key: sarama.ByteEncoder(one.Key), Value: sarama.ByteEncoder(one.Value), Partition: one.Partition,
		}
	}
	if err := producer.SendMessages(messages); err != nil {
		return err
	}
	if err := producer.AddMessageToTxn(batch[len(batch)-1], it.group, nil); err != nil {
		return err
	}
	return producer.CommitTxn()
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func main() {
	name := os.Args[5]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	handler := etl{[]string{os.Args[1]}, os.Args[3], os.Args[4], name}
	for ctx.Err() == nil {
		group, err := sarama.NewConsumerGroup(handler.servers, handler.group, settings())
		for err == nil && ctx.Err() == nil {
			if err = group.Consume(ctx, []string{os.Args[2]}, handler); err == nil {
				// A claim that failed ends all claims; the group begins at what is committed.
				continue
			}
		}
		if err != nil {
			fmt.Println("anew after", err)
			time.Sleep(200 * time.Millisecond)
		}
		if group != nil {
			group.Close()
		}
	}
}
