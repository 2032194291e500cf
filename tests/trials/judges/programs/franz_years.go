// What programs of any year do, by franz-go. Prints a line for each part.
//
// franz_years BOOTSTRAP SOURCE SINK GROUP
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func part(name string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", name, err)
	} else {
		fmt.Printf("%s: ok\n", name)
	}
}

func create(ctx context.Context, client *kgo.Client, names ...string) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	described := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
		request.Topics = append(request.Topics, topic)
		wanted := kmsg.NewMetadataRequestTopic()
		wanted.Topic = kmsg.StringPtr(name)
		described.Topics = append(described.Topics, wanted)
	}
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, topic := range answer.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
			return err
		}
	}
	found, err := described.RequestWith(ctx, client)
	if err == nil && len(found.Topics) != 2 {
		err = fmt.Errorf("%d topics", len(found.Topics))
	}
	return err
}

func produce(ctx context.Context, client *kgo.Client, source string) error {
	for i := 0; i < 10; i++ {
		record := &kgo.Record{Topic: source, Key: []byte(fmt.Sprint("k", i)), Value: []byte(fmt.Sprint("v", i))}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func transaction(ctx context.Context, server, source, sink, group string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(server), kgo.TransactionalID(group), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source),
		kgo.DefaultProduceTopic(sink), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return err
	}
	if err := session.ProduceSync(ctx, kgo.StringRecord("aborted")).FirstErr(); err != nil {
		return err
	}
	if _, err := session.End(ctx, kgo.TryAbort); err != nil {
		return err
	}
	for copied := 0; copied < 10; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(it *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Key: it.Key, Value: bytes.ToUpper(it.Value)}, nil)
		})
		if committed, err := session.End(ctx, kgo.TryCommit); err != nil || !committed {
			return fmt.Errorf("committed %v: %v", committed, err)
		}
		copied += fetches.NumRecords()
	}
	return nil
}

func groups(ctx context.Context, client *kgo.Client, group string) error {
	listed, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, it := range listed.Groups {
		if it.Group == group {
			request := kmsg.NewPtrDescribeGroupsRequest()
			request.Groups = []string{group}
			_, err := request.RequestWith(ctx, client)
			return err
		}
	}
	return fmt.Errorf("listed %v", listed.Groups)
}

func main() {
	ctx, end := context.WithTimeout(context.Background(), time.Minute)
	defer end()
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	if err != nil {
		part("create", err)
		return
	}
	defer client.Close()
	part("create", create(ctx, client, os.Args[2], os.Args[3]))
	part("produce", produce(ctx, client, os.Args[2]))
	part("transaction", transaction(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4]))
	part("groups", groups(ctx, client, os.Args[4]))
}
