// What programs of any year do, by Sarama. Prints a line for each part.
//
// sarama_years BOOTSTRAP SOURCE SINK GROUP
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func part(name string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", name, err)
	} else {
		fmt.Printf("%s: ok\n", name)
	}
}

func settings(id string) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = id
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func create(admin sarama.ClusterAdmin, names ...string) error {
	for _, name := range names {
		if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
			return err
		}
	}
	found, err := admin.DescribeTopics(names)
	if err == nil && (len(found) != 2 || found[0].Err != sarama.ErrNoError) {
		err = fmt.Errorf("described %v", found)
	}
	return err
}

func produce(servers []string, source string) error {
	producer, err := sarama.NewSyncProducer(servers, settings(""))
	if err != nil {
		return err
	}
	defer producer.Close()
	for i := 0; i < 10; i++ {
		message := &sarama.ProducerMessage{Topic: source, Key: sarama.StringEncoder(fmt.Sprint("k", i)), Value: sarama.StringEncoder(fmt.Sprint("v", i))}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	return nil
}

type copier struct {
	producer    sarama.SyncProducer
	sink, group string
	end         func()
	err         error
}

func (*copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (it *copier) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	defer it.end()
	if it.err = it.producer.BeginTxn(); it.err != nil {
		return it.err
	}
	for i := 0; i < 10; i++ {
		one := <-claim.Messages()
		if one == nil {
			it.err = fmt.Errorf("%d messages", i)
			return it.err
		}
		value := sarama.StringEncoder(strings.ToUpper(string(one.Value)))
		if _, _, it.err = it.producer.SendMessage(&sarama.ProducerMessage{Topic: it.sink, Value: value}); it.err != nil {
			return it.err
		}
		if it.err = it.producer.AddMessageToTxn(one, it.group, nil); it.err != nil {
			return it.err
		}
	}
	it.err = it.producer.CommitTxn()
	return it.err
}

func transaction(servers []string, source, sink, group string) error {
	producer, err := sarama.NewSyncProducer(servers, settings(group))
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: sink, Value: sarama.StringEncoder("aborted")}); err != nil {
		return err
	}
	if err := producer.AbortTxn(); err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerGroup(servers, group, settings(""))
	if err != nil {
		return err
	}
	defer consumer.Close()
	ctx, end := context.WithTimeout(context.Background(), 40*time.Second)
	defer end()
	handler := &copier{producer: producer, sink: sink, group: group, end: end}
	if err := consumer.Consume(ctx, []string{source}, handler); err != nil {
		return err
	}
	return handler.err
}

func groups(admin sarama.ClusterAdmin, source, group string) error {
	listed, err := admin.ListConsumerGroups()
	if err != nil {
		return err
	}
	if _, isThere := listed[group]; !isThere {
		return fmt.Errorf("listed %v", listed)
	}
	if _, err := admin.DescribeConsumerGroups([]string{group}); err != nil {
		return err
	}
	found, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{source: {0}})
	if err == nil && found.GetBlock(source, 0).Offset != 10 {
		err = fmt.Errorf("offset %d", found.GetBlock(source, 0).Offset)
	}
	return err
}

func main() {
	servers, source, sink, group := []string{os.Args[1]}, os.Args[2], os.Args[3], os.Args[4]
	admin, err := sarama.NewClusterAdmin(servers, settings(""))
	if err != nil {
		part("create", err)
		return
	}
	part("create", create(admin, source, sink))
	part("produce", produce(servers, source))
	part("transaction", transaction(servers, source, sink, group))
	part("groups", groups(admin, source, group))
}
