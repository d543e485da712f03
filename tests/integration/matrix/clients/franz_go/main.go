// What a client does in the matrix, with franz-go: see tests/integration/matrix/programs.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const patience = 60 * time.Second

var (
	name    = os.Args[5]
	denied  = os.Args[7]
	records = number(os.Args[6])
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	admin := client(os.Args[3])
	defer admin.Close()
	metadata := kmsg.NewPtrMetadataRequest()
	cluster, err := metadata.RequestWith(ctx, admin)
	check(err)
	var nodes []int
	for _, node := range cluster.Brokers {
		nodes = append(nodes, int(node.NodeID))
	}
	sort.Ints(nodes)
	say("cluster", fmt.Sprint(*cluster.ClusterID, nodes))
	create(ctx, admin, name, 3)
	create(ctx, admin, name+"-t", 1)
	time.Sleep(1500 * time.Millisecond) // brokers learn of topics a moment later
	say("created", "again: "+create(ctx, admin, name, 3))
	describe(ctx, admin)
	produce(ctx)
	say("ends", ends(ctx, admin, name, 3))
	say("classic", consume(ctx, name, name+"-classic", records))
	say("consumer", consume(ctx, name, name+"-consumer", records, kgo.WithContext(nextGeneration(ctx))))
	say("share", share(ctx, admin))
	say("groups", groups(ctx, admin))
	committed(ctx, admin)
	transactions(ctx)
	say("transactions' end", ends(ctx, admin, name+"-t", 1))
	producer := client(os.Args[3], kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()))
	say("denied", word(producer.ProduceSync(ctx, &kgo.Record{Topic: denied, Value: []byte("1")}).FirstErr()))
	producer.Close()
	say("denied group", consume(ctx, name, "of-others", 1))
	remove(ctx, admin, name+"-t")
	remove(ctx, admin, name)
	say("deleted", "again: "+remove(ctx, admin, name))
	wrong := client("wrong")
	_, err = metadata.RequestWith(ctx, wrong)
	say("wrong password", word(err))
	wrong.Close()
}

func client(secret string, more ...kgo.Opt) *kgo.Client {
	pem, err := os.ReadFile(os.Args[4])
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	options := append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ClientID("franz-go"),
		kgo.DialTLSConfig(&tls.Config{RootCAs: roots}),
		kgo.SASL(scram.Auth{User: os.Args[2], Pass: secret}.AsSha512Mechanism()),
	}, more...)
	made, err := kgo.NewClient(options...)
	check(err)
	return made
}

func create(ctx context.Context, admin *kgo.Client, topic string, partitions int32) string {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 30000
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, partitions, 3
	request.Topics = append(request.Topics, one)
	answer, err := request.RequestWith(ctx, admin)
	check(err)
	return word(kerr.ErrorForCode(answer.Topics[0].ErrorCode))
}

func remove(ctx context.Context, admin *kgo.Client, topic string) string {
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = 30000
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic = kmsg.StringPtr(topic)
	request.Topics, request.TopicNames = append(request.Topics, one), []string{topic}
	answer, err := request.RequestWith(ctx, admin)
	check(err)
	return word(kerr.ErrorForCode(answer.Topics[0].ErrorCode))
}

func describe(ctx context.Context, admin *kgo.Client) {
	request := kmsg.NewPtrMetadataRequest()
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = kmsg.StringPtr(name)
	request.Topics = append(request.Topics, one)
	answer, err := request.RequestWith(ctx, admin)
	check(err)
	found := map[int32]int{}
	for _, partition := range answer.Topics[0].Partitions {
		found[partition.Partition] = len(partition.Replicas)
	}
	say("described", fmt.Sprint(found))
}

func produce(ctx context.Context) {
	producer := client(os.Args[3], kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	var all []*kgo.Record
	for n := range records {
		all = append(all, &kgo.Record{Topic: name, Partition: int32(n % 3), Value: []byte(strconv.Itoa(n))})
	}
	results := producer.ProduceSync(ctx, all...)
	check(results.FirstErr())
	say("produced", fmt.Sprint(len(results), " acknowledged"))
}

func consume(ctx context.Context, topic, group string, count int, more ...kgo.Opt) string {
	options := append([]kgo.Opt{
		kgo.WithContext(ctx), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}, more...)
	consumer := client(os.Args[3], options...)
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	came, sum := 0, 0
	for came < count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return word(err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			came++
			sum += number(string(record.Value))
		})
	}
	check(consumer.CommitUncommittedOffsets(ctx))
	return fmt.Sprintf("%d records, sum %d", came, sum)
}

// nextGeneration has a group speak KIP-848, which franz-go does for those only who know this key.
func nextGeneration(ctx context.Context) context.Context {
	return context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
}

// share is what a share group gets (KIP-932). Records may come again where an acceptance is late: each value counts once.
func share(ctx context.Context, admin *kgo.Client) string {
	group := name + "-share"
	fromStart(ctx, admin, group)
	consumer := client(os.Args[3], kgo.WithContext(ctx), kgo.ShareGroup(group), kgo.ConsumeTopics(name))
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	values, sum := map[int]bool{}, 0
	for len(values) < records {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return word(err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if value := number(string(record.Value)); !values[value] {
				values[value] = true
				sum += value
			}
		})
		consumer.MarkAcks(kgo.AckAccept)
	}
	check(consumer.FlushAcks(ctx))
	return fmt.Sprintf("%d records, sum %d", len(values), sum)
}

func fromStart(ctx context.Context, admin *kgo.Client, group string) {
	setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	setting.Name, setting.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	resource.Configs = append(resource.Configs, setting)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(ctx, admin)
	check(err)
	check(kerr.ErrorForCode(answer.Resources[0].ErrorCode))
}

// groups are ours with their kinds: where a gateway hid an API, a classic group would do as well.
func groups(ctx context.Context, admin *kgo.Client) string {
	var found []string
	for _, shard := range admin.RequestSharded(ctx, kmsg.NewPtrListGroupsRequest()) {
		check(shard.Err)
		for _, group := range shard.Resp.(*kmsg.ListGroupsResponse).Groups {
			if strings.HasPrefix(group.Group, name+"-") {
				found = append(found, group.Group+" "+strings.ToLower(group.GroupType))
			}
		}
	}
	sort.Strings(found)
	return strings.Join(found, ", ")
}

func committed(ctx context.Context, admin *kgo.Client) {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = name + "-classic"
	one := kmsg.NewOffsetFetchRequestTopic()
	one.Topic, one.Partitions = name, []int32{0, 1, 2}
	request.Topics = append(request.Topics, one)
	answer, err := request.RequestWith(ctx, admin)
	check(err)
	topics := answer.Topics
	found := map[int32]int64{}
	for _, topic := range topics {
		for _, partition := range topic.Partitions {
			found[partition.Partition] = partition.Offset
		}
	}
	say("committed", fmt.Sprint(found))
}

func transactions(ctx context.Context) {
	producer := client(os.Args[3], kgo.TransactionalID(name+"-t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	for _, first := range []int{0, 100} {
		check(producer.BeginTransaction())
		for n := first; n < first+10; n++ {
			record := &kgo.Record{Topic: name + "-t", Value: []byte(strconv.Itoa(n))}
			check(producer.ProduceSync(ctx, record).FirstErr())
		}
		check(producer.EndTransaction(ctx, kgo.TransactionEndTry(first == 0)))
	}
	say("transactions", consume(ctx, name+"-t", name+"-rc", 10, kgo.FetchIsolationLevel(kgo.ReadCommitted())))
}

func ends(ctx context.Context, admin *kgo.Client, topic string, partitions int32) string {
	request := kmsg.NewPtrListOffsetsRequest()
	one := kmsg.NewListOffsetsRequestTopic()
	one.Topic = topic
	for n := range partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = n, -1
		one.Partitions = append(one.Partitions, partition)
	}
	request.Topics = append(request.Topics, one)
	found := map[int32]int64{}
	for _, shard := range admin.RequestSharded(ctx, request) {
		check(shard.Err)
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, partition := range topic.Partitions {
				found[partition.Partition] = partition.Offset
			}
		}
	}
	return fmt.Sprint(found)
}

// word is the name of a broker's error, or what the client says of another one.
func word(err error) string {
	var known *kerr.Error
	if err == nil {
		return "none"
	}
	if errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func say(step, result string) { fmt.Println(step + ": " + result) }
