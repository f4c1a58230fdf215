// franz-go, asked as ../../secured/worker.py tells: one JSON object in a line, each way.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const timeout = 30 * time.Second

type settings struct {
	Bootstrap, Protocol, Mechanism, Username, Password, Token, CA, Certificate, Key string
	IsToken                                                                         bool `json:"is_token"`
}

type request struct {
	Do, Topic, Group string
	Values           []string
	Count            int
	Settings         settings
}

type answer map[string]any

func (s settings) mechanism() sasl.Mechanism {
	auth := scram.Auth{User: s.Username, Pass: s.Password, IsToken: s.IsToken}
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return auth.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return auth.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: s.Token}.AsMechanism()
	}
}

func (s settings) tls() (*tls.Config, error) {
	pem, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if s.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(s.Certificate, s.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// client returns a client that the broker has let in: kgo itself tries again for as long as it may.
func (s settings) client(ctx context.Context, options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options,
		kgo.SeedBrokers(s.Bootstrap),
		kgo.RequestRetries(2),
		kgo.RecordDeliveryTimeout(timeout),
	)
	if strings.HasSuffix(s.Protocol, "SSL") {
		config, err := s.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if s.Mechanism != "" {
		options = append(options, kgo.SASL(s.mechanism()))
	}
	cl, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return nil, err
	}
	return cl, nil
}

func produce(ctx context.Context, r request) (answer, error) {
	cl, err := r.Settings.client(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	offsets := []int64{}
	for _, value := range r.Values {
		record := &kgo.Record{Topic: r.Topic, Value: []byte(value)}
		if err := cl.ProduceSync(ctx, record).FirstErr(); err != nil {
			return nil, fmt.Errorf("%s: %w", record.Topic, err)
		}
		offsets = append(offsets, record.Offset)
	}
	return answer{"offsets": offsets}, nil
}

func consume(ctx context.Context, r request) (answer, error) {
	cl, err := r.Settings.client(ctx,
		kgo.ConsumerGroup(r.Group),
		kgo.ConsumeTopics(r.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	values := []string{}
	for len(values) < r.Count {
		fetches := cl.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			return nil, fmt.Errorf("%s: %w", failed.Topic, failed.Err)
		}
		for _, each := range fetches.Records() {
			values = append(values, string(each.Value))
		}
		if err := cl.CommitRecords(ctx, fetches.Records()...); err != nil {
			return nil, err
		}
	}
	return answer{"values": values}, nil
}

func describe(ctx context.Context, r request) (answer, error) {
	cl, err := r.Settings.client(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = &r.Topic
	asked := kmsg.NewPtrMetadataRequest()
	asked.Topics = append(asked.Topics, wanted)
	metadata, err := asked.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(metadata.Topics[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Topic, err)
	}
	groups := kmsg.NewPtrDescribeGroupsRequest()
	groups.Groups = []string{r.Group}
	described, err := groups.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(described.Groups[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Group, err)
	}
	return answer{"partitions": len(metadata.Topics[0].Partitions), "group": described.Groups[0].Group}, nil
}

func hello(context.Context, request) (answer, error) {
	info, _ := debug.ReadBuildInfo()
	for _, each := range info.Deps {
		if each.Path == "github.com/twmb/franz-go" {
			return answer{"version": strings.TrimPrefix(each.Version, "v")}, nil
		}
	}
	return nil, errors.New("built without franz-go")
}

func refusal(err error) answer {
	name := fmt.Sprintf("%T", err)
	var code *kerr.Error
	var alert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &code):
		name = code.Message
	case errors.As(err, &alert):
		name = "CertificateVerificationError"
	default:
		for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
			name = fmt.Sprintf("%T", inner)
		}
	}
	return answer{"error": name, "told": err.Error()}
}

func main() {
	actions := map[string]func(context.Context, request) (answer, error){
		"hello": hello, "produce": produce, "consume": consume, "describe": describe,
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		found, err := actions[r.Do](ctx, r)
		cancel()
		if err != nil {
			found = refusal(err)
		}
		line, _ := json.Marshal(found)
		fmt.Println(string(line))
	}
}
