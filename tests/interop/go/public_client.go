// RocketMQ's gRPC client in Go at work: ENDPOINTS SCENARIO... ; each says what it saw.
// The environment decides whether the client uses TLS (rocketmq.client.enableSsl).
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const count = 12

func config(group string) *rmq.Config {
	return &rmq.Config{
		Endpoint:      os.Args[1],
		ConsumerGroup: group,
		Credentials: &credentials.SessionCredentials{
			AccessKey:    os.Getenv("ACCESS_KEY"),
			AccessSecret: os.Getenv("SECRET_KEY"),
		},
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func message(topic string, number int) *rmq.Message {
	made := &rmq.Message{Topic: topic, Body: []byte(fmt.Sprintf("body-%d", number))}
	if number%2 == 1 {
		made.SetTag("TagA")
	} else {
		made.SetTag("TagB")
	}
	made.SetKeys(fmt.Sprintf("key-%d", number))
	made.AddProperty("n", strconv.Itoa(number))
	return made
}

func producer(topic string, options ...rmq.ProducerOption) rmq.Producer {
	made, err := rmq.NewProducer(config(""), append(options, rmq.WithTopics(topic))...)
	check(err)
	check(made.Start())
	return made
}

func send(from rmq.Producer, made *rmq.Message) *rmq.SendReceipt {
	receipts, err := from.Send(context.Background(), made)
	check(err)
	return receipts[0]
}

// What a consumer got, and when.
type collected struct {
	sync.Mutex
	views []*rmq.MessageView
	times []time.Time
}

func (c *collected) add(view *rmq.MessageView) int {
	c.Lock()
	defer c.Unlock()
	c.views = append(c.views, view)
	c.times = append(c.times, time.Now())
	return len(c.views)
}

func (c *collected) size() int {
	c.Lock()
	defer c.Unlock()
	return len(c.views)
}

func (c *collected) bodies() []string {
	c.Lock()
	defer c.Unlock()
	found := []string{}
	for _, view := range c.views {
		found = append(found, string(view.GetBody()))
	}
	sort.Strings(found)
	return found
}

func (c *collected) attempts() string {
	found := []string{}
	for _, view := range c.views {
		found = append(found, strconv.Itoa(int(view.GetDeliveryAttempt())))
	}
	return "[" + strings.Join(found, ", ") + "]"
}

func until(condition func() bool, seconds int) {
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for !condition() && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
}

func said(claim bool) string {
	if claim {
		return "True"
	}
	return "False"
}

func quoted(texts []string) string {
	found := []string{}
	for _, text := range texts {
		found = append(found, "'"+text+"'")
	}
	return "[" + strings.Join(found, ", ") + "]"
}

func summary(bodies []string, wanted int) string {
	expected := []string{}
	for i := 0; i < wanted; i++ {
		expected = append(expected, fmt.Sprintf("body-%d", i))
	}
	sort.Strings(expected)
	same := strings.Join(expected, " ") == strings.Join(bodies, " ")
	return fmt.Sprintf("%d messages, as sent: %s", len(bodies), said(same))
}

type decision func(rmq.SimpleConsumer, *rmq.MessageView)

func ack(consumer rmq.SimpleConsumer, view *rmq.MessageView) {
	check(consumer.Ack(context.Background(), view))
}

// A simple consumer that receives all the time.
func receive(topic string, tags string, settle decision) *collected {
	consumer, err := rmq.NewSimpleConsumer(config("G-"+topic),
		rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{
			topic: rmq.NewFilterExpression(tags),
		}))
	check(err)
	check(consumer.Start())
	got := &collected{}
	go func() {
		for {
			views, err := consumer.Receive(context.Background(), 16, 10*time.Second)
			if err != nil {
				time.Sleep(200 * time.Millisecond)
			}
			for _, view := range views {
				got.add(view)
				settle(consumer, view)
			}
		}
	}()
	// A new group begins behind the newest message: it must have asked once.
	time.Sleep(2 * time.Second)
	return got
}

func push(topic string, consume func(*rmq.MessageView) rmq.ConsumerResult) *collected {
	got := &collected{}
	consumer, err := rmq.NewPushConsumer(config("G-"+topic),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{
			Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
				got.add(view)
				return consume(view)
			},
		}))
	check(err)
	check(consumer.Start())
	time.Sleep(7 * time.Second)
	return got
}

func simple() string {
	got := receive("simple", "*", ack)
	from := producer("simple")
	ids := map[string]bool{}
	for i := 0; i < count; i++ {
		ids[send(from, message("simple", i)).MessageID] = true
	}
	until(func() bool { return got.size() >= count }, 30)
	kept, whole := len(ids) == count, true
	for _, view := range got.views {
		kept = kept && ids[view.GetMessageId()]
		whole = whole && view.GetTopic() == "simple" && view.GetDeliveryAttempt() == 1 &&
			view.GetKeys()[0] == "key-"+view.GetProperties()["n"] && view.GetTag() != nil
	}
	return fmt.Sprintf("%s, ids kept %s, whole %s", summary(got.bodies(), count), said(kept), said(whole))
}

func tags() string {
	got := receive("tags", "TagA", ack)
	from := producer("tags")
	for i := 0; i < count; i++ {
		send(from, message("tags", i))
	}
	until(func() bool { return got.size() >= count/2 }, 30)
	found := map[string]bool{}
	for _, view := range got.views {
		found[*view.GetTag()] = true
	}
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	return fmt.Sprintf("%d messages, tags %s", got.size(), quoted(names))
}

func again() string {
	first := true
	got := receive("again", "*", func(consumer rmq.SimpleConsumer, view *rmq.MessageView) {
		if first {
			first = false
			check(consumer.ChangeInvisibleDuration(view, 11*time.Second))
			return
		}
		ack(consumer, view)
	})
	from := producer("again")
	send(from, message("again", 0))
	until(func() bool { return got.size() >= 2 }, 40)
	late := len(got.times) > 1 && got.times[1].Sub(got.times[0]) >= 10500*time.Millisecond
	return fmt.Sprintf("attempts %s, not early %s", got.attempts(), said(late))
}

func pushed() string {
	got := push("push", func(*rmq.MessageView) rmq.ConsumerResult { return rmq.SUCCESS })
	from := producer("push")
	for i := 0; i < count; i++ {
		send(from, message("push", i))
	}
	until(func() bool { return got.size() >= count }, 30)
	return summary(got.bodies(), count)
}

func retry() string {
	got := push("retry", func(view *rmq.MessageView) rmq.ConsumerResult {
		if view.GetDeliveryAttempt() < 2 {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	from := producer("retry")
	send(from, message("retry", 0))
	until(func() bool { return got.size() >= 2 }, 60)
	return "attempts " + got.attempts()
}

func fifo() string {
	got := push("fifo", func(*rmq.MessageView) rmq.ConsumerResult { return rmq.SUCCESS })
	from := producer("fifo")
	for i := 0; i < count; i++ {
		made := message("fifo", i)
		made.SetMessageGroup(fmt.Sprintf("group-%d", i%3))
		send(from, made)
	}
	until(func() bool { return got.size() >= count }, 30)
	last, inOrder := map[string]int{}, true
	for _, view := range got.views {
		number, _ := strconv.Atoi(view.GetProperties()["n"])
		before, known := last[*view.GetMessageGroup()]
		inOrder = inOrder && (!known || before < number)
		last[*view.GetMessageGroup()] = number
	}
	return fmt.Sprintf("%s, in order %s", summary(got.bodies(), count), said(inOrder))
}

func delay() string {
	got := receive("delay", "*", ack)
	from := producer("delay")
	due := map[string]time.Time{}
	for i := 0; i < 4; i++ {
		at := time.Now().Truncate(time.Second).Add(time.Duration(2+i) * time.Second)
		made := message("delay", i)
		due[string(made.Body)] = at
		made.SetDelayTimestamp(at)
		send(from, made)
	}
	until(func() bool { return got.size() >= 4 }, 30)
	early := 0
	for i, view := range got.views {
		if got.times[i].Before(due[string(view.GetBody())]) {
			early++
		}
	}
	return fmt.Sprintf("%s, early %d", summary(got.bodies(), 4), early)
}

// Committed, rolled back, and two that only the broker's question decides.
func transaction() string {
	got := receive("transaction", "*", ack)
	from := producer("transaction", rmq.WithTransactionChecker(&rmq.TransactionChecker{
		Check: func(view *rmq.MessageView) rmq.TransactionResolution {
			if number, _ := strconv.Atoi(view.GetProperties()["n"]); number%2 == 0 {
				return rmq.COMMIT
			}
			return rmq.ROLLBACK
		},
	}))
	for i := 0; i < 4; i++ {
		half := from.BeginTransaction()
		_, err := from.SendWithTransaction(context.Background(), message("transaction", i), half)
		check(err)
		if i == 0 {
			check(half.Commit())
		} else if i == 1 {
			check(half.RollBack())
		}
	}
	until(func() bool { return got.size() >= 2 }, 60)
	time.Sleep(2 * time.Second)
	return "came " + quoted(got.bodies())
}

func main() {
	rmq.ResetLogger()
	scenarios := map[string]func() string{
		"simple": simple, "tags": tags, "again": again, "push": pushed, "retry": retry,
		"fifo": fifo, "delay": delay, "transaction": transaction,
	}
	var running sync.WaitGroup
	// Side by side: most of them wait for something.
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
