// Ordinary programs with sarama and with kafka-go: MODE BOOTSTRAP NAME=VALUE ...
//
//	sarama-produce    topic, count, codec               idempotent, every record acknowledged
//	sarama-consume    topic, group, count, isolation    a member of a group, commits what it printed
//	sarama-copy       topic, to, group, id, count       read, transform, write; every third transaction is aborted
//	sarama-admin      topic                             creates, describes, alters, deletes
//	kafka-go-produce  topic, count, codec               every record acknowledged by all replicas
//	kafka-go-consume  topic, group, count               a member of a group, commits what it printed
//
// It prints a line for each record and ends with status 0 when the count is reached. Any error that
// a client returns ends it with status 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
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

// ours returns sarama's settings for a broker of today.
func ours(id string) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ClientID = id
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func message(topic string, value string, number int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic:     topic,
		Partition: int32(number % 3),
		Key:       sarama.StringEncoder(strconv.Itoa(number)),
		Value:     sarama.StringEncoder(value),
		Headers:   []sarama.RecordHeader{{Key: []byte("number"), Value: []byte(strconv.Itoa(number))}},
	}
}

func saramaProduce(bootstrap []string, s settings) {
	config := ours("sarama")
	check(config.Producer.Compression.UnmarshalText([]byte(s["codec"])))
	producer, err := sarama.NewAsyncProducer(bootstrap, config)
	check(err)
	count := s.number("count")
	go func() {
		for number := range count {
			producer.Input() <- message(s["topic"], strconv.Itoa(number), number)
		}
	}()
	for range count {
		select {
		case done := <-producer.Successes():
			fmt.Println("acknowledged", done.Partition, done.Offset)
		case failure := <-producer.Errors():
			check(failure)
		}
	}
	check(producer.Close())
}

// handler reads until it has so many records, and then ends the session.
type handler struct {
	count   int
	read    int
	commits bool
	end     context.CancelFunc
	each    func(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage)
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// one at a time: the claims of a session run in goroutines of their own
var turn = make(chan struct{}, 1)

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			turn <- struct{}{}
			if h.read < h.count {
				h.each(session, message)
				h.read++
				if h.commits && (h.read%100 == 0 || h.read == h.count) {
					session.Commit()
				}
			}
			if h.read == h.count {
				h.end()
			}
			<-turn
		case <-session.Context().Done():
			return nil
		}
	}
}

func readGroup(bootstrap []string, config *sarama.Config, s settings, commits bool, each func(sarama.ConsumerGroupSession, *sarama.ConsumerMessage)) {
	group, err := sarama.NewConsumerGroup(bootstrap, s["group"], config)
	check(err)
	ctx, end := context.WithCancel(context.Background())
	h := &handler{count: s.number("count"), commits: commits, end: end, each: each}
	for ctx.Err() == nil {
		check(group.Consume(ctx, []string{s["topic"]}, h))
	}
	check(group.Close())
}

func saramaConsume(bootstrap []string, s settings) {
	config := ours("sarama")
	if s["isolation"] == "committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	readGroup(bootstrap, config, s, true, func(session sarama.ConsumerGroupSession, m *sarama.ConsumerMessage) {
		fmt.Println("read", m.Partition, m.Offset, string(m.Value), string(m.Headers[0].Value))
		session.MarkMessage(m, "")
	})
}

func saramaCopy(bootstrap []string, s settings) {
	config := ours("sarama")
	config.Producer.Transaction.ID = s["id"]
	producer, err := sarama.NewAsyncProducer(bootstrap, config)
	check(err)
	go func() {
		for range producer.Successes() {
		}
	}()
	go func() {
		for failure := range producer.Errors() {
			check(failure)
		}
	}()
	transactions := 0
	write := func(m *sarama.ConsumerMessage, word string) {
		check(producer.BeginTxn())
		copied := message(s["to"], word+string(m.Value), 0)
		copied.Partition = m.Partition
		producer.Input() <- copied
	}
	readGroup(bootstrap, ours("sarama"), s, false, func(_ sarama.ConsumerGroupSession, m *sarama.ConsumerMessage) {
		transactions++
		if transactions%3 == 0 {
			write(m, "aborted-")
			check(producer.AbortTxn())
		}
		write(m, "copied-")
		check(producer.AddMessageToTxn(m, s["group"], nil))
		check(producer.CommitTxn())
	})
	check(producer.Close())
}

func saramaAdmin(bootstrap []string, s settings) {
	admin, err := sarama.NewClusterAdmin(bootstrap, ours("sarama"))
	check(err)
	topic := s["topic"]
	hour := "3600000"
	check(admin.CreateTopic(topic, &sarama.TopicDetail{
		NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &hour},
	}, false))
	check(admin.CreatePartitions(topic, 5, nil, false))
	day := "86400000"
	check(admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &day},
	}, false))
	described, err := admin.DescribeTopics([]string{topic})
	check(err)
	fmt.Println("partitions", len(described[0].Partitions))
	entries, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"},
	})
	check(err)
	fmt.Println("retention.ms", entries[0].Value)
	err = admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	fmt.Println("again", errors.Is(err, sarama.ErrTopicAlreadyExists))
	check(admin.DeleteTopic(topic))
	check(admin.Close())
}

func kafkaGoProduce(bootstrap []string, s settings) {
	var codec kafka.Compression
	if s["codec"] != "none" {
		check(codec.UnmarshalText([]byte(s["codec"])))
	}
	writer := &kafka.Writer{
		Addr:         kafka.TCP(bootstrap...),
		Topic:        s["topic"],
		Balancer:     &kafka.RoundRobin{},
		RequiredAcks: kafka.RequireAll,
		Compression:  codec,
		BatchTimeout: 5 * time.Millisecond,
	}
	messages := make([]kafka.Message, 0, s.number("count"))
	for number := range s.number("count") {
		text := []byte(strconv.Itoa(number))
		header := kafka.Header{Key: "number", Value: text}
		messages = append(messages, kafka.Message{Key: text, Value: text, Headers: []kafka.Header{header}})
	}
	check(writer.WriteMessages(context.Background(), messages...))
	check(writer.Close())
	fmt.Println("written", len(messages))
}

func kafkaGoConsume(bootstrap []string, s settings) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: bootstrap, GroupID: s["group"], Topic: s["topic"],
		StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond,
	})
	var read []kafka.Message
	count := s.number("count")
	for number := range count {
		m, err := reader.FetchMessage(context.Background())
		check(err)
		fmt.Println("read", m.Partition, m.Offset, string(m.Value), string(m.Headers[0].Value))
		read = append(read, m)
		if number%100 == 99 || number == count-1 {
			check(reader.CommitMessages(context.Background(), read...))
			read = nil
		}
	}
	check(reader.Close())
}

func main() {
	s := settings{}
	for _, word := range os.Args[3:] {
		name, value, _ := strings.Cut(word, "=")
		s[name] = value
	}
	modes := map[string]func([]string, settings){
		"sarama-produce":   saramaProduce,
		"sarama-consume":   saramaConsume,
		"sarama-copy":      saramaCopy,
		"sarama-admin":     saramaAdmin,
		"kafka-go-produce": kafkaGoProduce,
		"kafka-go-consume": kafkaGoConsume,
	}
	modes[os.Args[1]](strings.Split(os.Args[2], ","), s)
}
