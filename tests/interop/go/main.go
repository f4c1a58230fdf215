// An ordinary program with franz-go: MODE BOOTSTRAP NAME=VALUE ...
//
//	produce   topic, count, prefix, partitions           idempotent, every record acknowledged
//	transact  topic, count, size, id, partitions         every third transaction is aborted
//	copy      topic, to, group, id, count, protocol      read, transform, write, with a crash of nobody
//	consume   topic, group, count, protocol, isolation   a member of a group, commits what it printed
//	share     topic, group, count                        accepts, releases once, rejects
//
// It prints a line for each record and ends with status 0 when the count is reached. Any error that
// franz-go returns ends it with status 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type settings map[string]string

func (s settings) number(name string) int {
	value, err := strconv.Atoi(s[name])
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	common := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(time.Minute),
	}
	made, err := kgo.NewClient(append(common, options...)...)
	check(err)
	return made
}

// record returns the numbered record of a topic; numbers go to the partitions by turns.
func record(topic string, value string, number int, partitions int) *kgo.Record {
	return &kgo.Record{Topic: topic, Value: []byte(value), Partition: int32(number % partitions)}
}

func produce(ctx context.Context, bootstrap string, s settings) {
	cl := client(bootstrap)
	defer cl.Close()
	for number := range s.number("count") {
		value := fmt.Sprintf("%s%d", s["prefix"], number)
		cl.Produce(ctx, record(s["topic"], value, number, s.number("partitions")), func(r *kgo.Record, err error) {
			check(err)
			fmt.Println("acknowledged", r.Partition, r.Offset, string(r.Value))
		})
	}
	check(cl.Flush(ctx))
}

func transact(ctx context.Context, bootstrap string, s settings) {
	cl := client(bootstrap, kgo.TransactionalID(s["id"]))
	defer cl.Close()
	size := s.number("size")
	for begin, turn := 0, 0; begin < s.number("count"); begin, turn = begin+size, turn+1 {
		check(cl.BeginTransaction())
		word, commit := "committed", kgo.TryCommit
		if turn%3 == 2 {
			word, commit = "aborted", kgo.TryAbort
		}
		for number := begin; number < begin+size; number++ {
			value := fmt.Sprintf("%s-%d", word, number)
			cl.Produce(ctx, record(s["topic"], value, number, s.number("partitions")), func(_ *kgo.Record, err error) {
				check(err)
			})
		}
		check(cl.Flush(ctx))
		check(cl.EndTransaction(ctx, commit))
		fmt.Println(word, begin)
	}
}

func group(s settings) []kgo.Opt {
	options := []kgo.Opt{
		kgo.ConsumerGroup(s["group"]),
		kgo.ConsumeTopics(s["topic"]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.FetchMaxWait(200 * time.Millisecond),
	}
	if s["protocol"] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if s["isolation"] == "committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return options
}

func poll(ctx context.Context, fetches kgo.Fetches) []*kgo.Record {
	for _, failed := range fetches.Errors() {
		check(failed.Err)
	}
	check(ctx.Err())
	return fetches.Records()
}

func consume(ctx context.Context, bootstrap string, s settings) {
	options := append(group(s), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
	cl := client(bootstrap, options...)
	defer cl.CloseAllowingRebalance()
	for read := 0; read < s.number("count"); {
		records := poll(ctx, cl.PollRecords(ctx, 100))
		for _, each := range records {
			fmt.Println("read", each.Partition, each.Offset, string(each.Value))
		}
		check(cl.CommitRecords(ctx, records...))
		cl.AllowRebalance()
		read += len(records)
	}
}

func copyAll(ctx context.Context, bootstrap string, s settings) {
	options := append(group(s), kgo.TransactionalID(s["id"]), kgo.RequireStableFetchOffsets())
	options = append(options,
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	session, err := kgo.NewGroupTransactSession(options...)
	check(err)
	defer session.Close()
	for copied, turn := 0, 0; copied < s.number("count"); turn++ {
		records := poll(ctx, session.PollRecords(ctx, 50))
		if len(records) == 0 {
			continue
		}
		check(session.Begin())
		for _, each := range records {
			made := &kgo.Record{Topic: s["to"], Partition: each.Partition, Value: append([]byte("copy-"), each.Value...)}
			session.Produce(ctx, made, func(_ *kgo.Record, err error) {
				if !errors.Is(err, kgo.ErrAborting) {
					check(err)
				}
			})
		}
		// Every fourth is aborted: the session goes back to what is committed.
		committed, err := session.End(ctx, kgo.TransactionEndTry(turn%4 != 3))
		check(err)
		if committed {
			copied += len(records)
			fmt.Println("copied", len(records))
		}
	}
}

func share(ctx context.Context, bootstrap string, s settings) {
	cl := client(bootstrap, kgo.ShareGroup(s["group"]), kgo.ConsumeTopics(s["topic"]),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { check(results.Error()) }))
	defer cl.Close()
	for done := 0; done < s.number("count"); {
		for _, each := range poll(ctx, cl.PollRecords(ctx, 50)) {
			number, err := strconv.Atoi(string(each.Value))
			check(err)
			word, status := "accepted", kgo.AckAccept
			switch {
			case number%10 == 3 && each.DeliveryCount() == 1:
				word, status = "released", kgo.AckRelease
			case number%10 == 7:
				word, status = "rejected", kgo.AckReject
			}
			each.Ack(status)
			fmt.Println(word, number, each.DeliveryCount())
			if status != kgo.AckRelease {
				done++
			}
		}
		check(cl.FlushAcks(ctx))
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	mode, bootstrap, s := os.Args[1], os.Args[2], settings{}
	for _, each := range os.Args[3:] {
		name, value, _ := strings.Cut(each, "=")
		s[name] = value
	}
	map[string]func(context.Context, string, settings){
		"produce": produce, "transact": transact, "copy": copyAll, "consume": consume, "share": share,
	}[mode](ctx, bootstrap, s)
}
