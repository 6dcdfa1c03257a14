// Lite topics by RocketMQ's gRPC client in Go: ENDPOINTS SCENARIO... ; each says what it saw.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const parent = "chats"

var producer rmq.Producer

func config(group string) *rmq.Config {
	return &rmq.Config{
		Endpoint:      os.Args[1],
		ConsumerGroup: group,
		Credentials:   &credentials.SessionCredentials{},
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func send(liteTopic string, bodies ...string) {
	for _, body := range bodies {
		made := &rmq.Message{Topic: parent, Body: []byte(body)}
		made.SetLiteTopic(liteTopic)
		_, err := producer.Send(context.Background(), made)
		check(err)
	}
}

type seen struct {
	sync.Mutex
	by       map[string][]string
	attempts []int32
}

func (got *seen) count() int {
	got.Lock()
	defer got.Unlock()
	return len(got.attempts)
}

func (got *seen) shown() string {
	got.Lock()
	defer got.Unlock()
	names := []string{}
	for name := range got.by {
		names = append(names, name)
	}
	sort.Strings(names)
	text := ""
	for _, name := range names {
		text += fmt.Sprintf("%s=%v ", name, got.by[name])
	}
	return text + "end"
}

func started(group string, decide func(int) bool) (rmq.LitePushConsumer, *seen) {
	got := &seen{by: map[string][]string{}}
	consume := func(view *rmq.MessageView) rmq.ConsumerResult {
		got.Lock()
		defer got.Unlock()
		name := view.GetLiteTopic()
		got.by[name] = append(got.by[name], string(view.GetBody()))
		got.attempts = append(got.attempts, view.GetDeliveryAttempt())
		if decide(len(got.attempts)) {
			return rmq.SUCCESS
		}
		return rmq.FAILURE
	}
	consumer, err := rmq.NewLitePushConsumer(config(group),
		rmq.NewLitePushConsumerConfig(parent, 30*time.Second),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushConsumptionThreadCount(4),
		rmq.WithPushMaxCacheMessageCount(1024),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	check(err)
	check(consumer.Start())
	return consumer, got
}

func until(condition func() bool, seconds int) {
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for !condition() && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
}

func lite() string {
	send("lite-a", "0", "1")
	consumer, got := started("G-lite", func(int) bool { return true })
	check(consumer.SubscribeLite("lite-a"))
	check(consumer.SubscribeLite("lite-b"))
	send("lite-a", "2")
	send("lite-b", "0", "1")
	send("lite-c", "0")
	until(func() bool { return got.count() >= 5 }, 20)
	check(consumer.GracefulStop())
	return got.shown()
}

func again() string {
	consumer, got := started("G-again", func(count int) bool { return count > 2 })
	check(consumer.SubscribeLite("again"))
	send("again", "bad")
	until(func() bool { return got.count() >= 3 }, 40)
	check(consumer.GracefulStop())
	return got.shown()
}

func main() {
	rmq.EnableSsl = false
	rmq.ResetLogger()
	var err error
	producer, err = rmq.NewProducer(config(""), rmq.WithTopics(parent))
	check(err)
	check(producer.Start())
	scenarios := map[string]func() string{"lite": lite, "again": again}
	var running sync.WaitGroup
	for _, name := range os.Args[2:] {
		running.Add(1)
		go func(name string) {
			defer running.Done()
			defer func() {
				if problem := recover(); problem != nil {
					fmt.Printf("%s: FAILED %v\n", name, problem)
				}
			}()
			fmt.Printf("%s: %s\n", name, scenarios[name]())
		}(name)
	}
	running.Wait()
}
