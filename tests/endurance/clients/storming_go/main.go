// The same as storming.py, with franz-go; without the name of a library.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

const patience = 240 * time.Second

func main() {
	bootstrap, user, secret, topic := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	partitions, slots, records := number(5), number(6), number(7)
	var ended atomic.Bool
	var running sync.WaitGroup
	for slot := range slots {
		running.Go(func() {
			for made := 0; !ended.Load(); made++ {
				run(fmt.Sprintf("%d.%d", slot, made), topic, partitions, records,
					kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
					kgo.SASL(plain.Auth{User: user, Pass: secret}.AsMechanism()))
			}
		})
	}
	io.Copy(io.Discard, os.Stdin)
	ended.Store(true)
	running.Wait()
}

func number(at int) int {
	found, err := strconv.Atoi(os.Args[at])
	if err != nil {
		panic(err)
	}
	return found
}

func run(name, topic string, partitions, records int, options ...kgo.Opt) {
	// It is idempotent by default. Of such keys a batch has room for one; it takes no smaller one.
	options = append(options,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(512),
		kgo.ProducerLinger(0),
		kgo.AlwaysRetryEOF(), // else a connection that is closed at once is the end: while the broker is away
		kgo.RecordDeliveryTimeout(patience))
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	var mutex sync.Mutex
	told, delivered := 0, 0
	key := make([]byte, 300)
	for n := range records {
		value := fmt.Sprintf("%s-%d", name, n)
		record := &kgo.Record{Topic: topic, Partition: int32(n % partitions), Key: key, Value: []byte(value)}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			told++
			if err != nil {
				fmt.Printf("failed %s %s\n", value, strings.ReplaceAll(err.Error(), "\n", " "))
			} else {
				delivered++
			}
		})
	}
	client.Flush(context.Background())
	mutex.Lock()
	defer mutex.Unlock()
	if delivered > 0 {
		fmt.Println("began")
	}
	fmt.Printf("sent %s %d %d\n", name, records, told)
}
