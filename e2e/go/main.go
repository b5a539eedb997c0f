// The official Go client against a cluster: sends in every way that it has, receives all of it by push and by pull, and
// wants nothing twice and nothing else. Ends with status 0 if all of that held, else says what did not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// A bound for hangs, not a measure of speed.
const patience = 4 * time.Minute

type run struct {
	names primitive.NamesrvAddr
	topic string
	mu    sync.Mutex
	// Body of each message that was sent, with the tag.
	sent map[string]string
	// An offset of each queue that answers named.
	queues map[primitive.MessageQueue]int64
}

func main() {
	address := flag.String("namesrv", "127.0.0.1:9876", "name servers, with ; between")
	topic := flag.String("topic", "GoTopic", "a topic that is there")
	flag.Parse()
	rlog.SetLogLevel("error")
	names, err := primitive.NewNamesrvAddr(*address)
	if err == nil {
		r := &run{names: names, topic: *topic, sent: map[string]string{}, queues: map[primitive.MessageQueue]int64{}}
		err = r.all()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "go client:", err)
		os.Exit(1)
	}
}

func (r *run) all() error {
	for _, step := range []struct {
		name string
		do   func() error
	}{{"send", r.send}, {"push", r.push}, {"push one tag", r.pushTag}, {"push in order", r.pushOrdered}, {"pull", r.pull}} {
		begin := time.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Println("ok:", step.name, time.Since(begin).Round(time.Millisecond))
	}
	return nil
}

func (r *run) message(kind string, n int) *primitive.Message {
	body := fmt.Sprintf("%s-%d-grüße 世界", kind, n)
	m := primitive.NewMessage(r.topic, []byte(body))
	tag := "even"
	if n%2 == 1 {
		tag = "odd"
	}
	m.WithTag(tag)
	m.WithKeys([]string{fmt.Sprintf("%s-%d", kind, n)})
	m.WithProperty("kind", kind)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[body] = tag
	return m
}

func (r *run) stored(result *primitive.SendResult) error {
	if result.Status != primitive.SendOK || len(result.OffsetMsgID) < 32 || result.MessageQueue == nil {
		return fmt.Errorf("a send was answered %v", result)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues[*result.MessageQueue] = result.QueueOffset
	return nil
}

func (r *run) send() error {
	p, err := rocketmq.NewProducer(producer.WithNameServer(r.names), producer.WithGroupName("go-producers"),
		producer.WithRetry(2), producer.WithSendMsgTimeout(30*time.Second))
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for n := 0; n < 20; n++ {
		result, err := p.SendSync(ctx, r.message("sync", n))
		if err != nil {
			return err
		}
		if err := r.stored(result); err != nil {
			return err
		}
	}
	answers := make(chan error, 20)
	for n := 0; n < 20; n++ {
		err := p.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			if err == nil {
				err = r.stored(result)
			}
			answers <- err
		}, r.message("async", n))
		if err != nil {
			return err
		}
	}
	for n := 0; n < 20; n++ {
		select {
		case err := <-answers:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return errors.New("asynchronous sends were not answered")
		}
	}
	for n := 0; n < 20; n++ {
		if err := p.SendOneWay(ctx, r.message("oneway", n)); err != nil {
			return err
		}
	}
	var batch []*primitive.Message
	for n := 0; n < 20; n++ {
		batch = append(batch, r.message("batch", n))
	}
	result, err := p.SendSync(ctx, batch...)
	if err != nil {
		return err
	}
	if err := r.stored(result); err != nil {
		return err
	}
	large := primitive.NewMessage(r.topic, make([]byte, 100_000)).WithTag("even")
	r.mu.Lock()
	r.sent[string(large.Body)] = "even"
	r.mu.Unlock()
	// The client compresses this one, and puts the compressed bytes into the message that it was given.
	result, err = p.SendSync(ctx, large)
	if err != nil {
		return err
	}
	if err := r.stored(result); err != nil {
		return err
	}
	return p.Shutdown()
}

// received keeps what came and says when all that is wanted has come.
type received struct {
	mu     sync.Mutex
	wanted map[string]bool
	strays []string
	done   chan struct{}
	closed bool
}

func (r *run) want(tag string) *received {
	w := &received{wanted: map[string]bool{}, done: make(chan struct{})}
	for body, its := range r.sent {
		if tag == "*" || tag == its {
			w.wanted[body] = false
		}
	}
	return w
}

func (w *received) take(messages []*primitive.MessageExt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range messages {
		seen, known := w.wanted[string(m.Body)]
		if !known || seen {
			w.strays = append(w.strays, fmt.Sprintf("%.40q in queue %d at %d", m.Body, m.Queue.QueueId, m.QueueOffset))
			continue
		}
		w.wanted[string(m.Body)] = true
	}
	for _, seen := range w.wanted {
		if !seen {
			return
		}
	}
	if !w.closed {
		w.closed = true
		close(w.done)
	}
}

func (w *received) complete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

func (w *received) verdict() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []string
	for body, seen := range w.wanted {
		if !seen {
			missing = append(missing, fmt.Sprintf("%.40q", body))
		}
	}
	if len(missing) > 0 || len(w.strays) > 0 {
		return fmt.Errorf("missing %v; twice or never sent %v", missing, w.strays)
	}
	return nil
}

func (r *run) consume(group, tag string, ordered bool) error {
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(r.names), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(ordered),
		consumer.WithInstance(group))
	if err != nil {
		return err
	}
	w := r.want(tag)
	err = c.Subscribe(r.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tag},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			w.take(messages)
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	select {
	case <-w.done:
	case <-time.After(patience):
	}
	if err := c.Shutdown(); err != nil {
		return err
	}
	return w.verdict()
}

func (r *run) push() error        { return r.consume("go-push", "*", false) }
func (r *run) pushTag() error     { return r.consume("go-push-tag", "odd", false) }
func (r *run) pushOrdered() error { return r.consume("go-push-ordered", "*", true) }

func (r *run) pull() error {
	c, err := rocketmq.NewPullConsumer(consumer.WithNameServer(r.names), consumer.WithGroupName("go-pull"),
		consumer.WithInstance("go-pull"))
	if err != nil {
		return err
	}
	if err := c.Subscribe(r.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	w := r.want("*")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for queue, offset := range r.queues {
		result, err := c.PullFrom(ctx, &queue, offset, 1)
		if err != nil {
			return err
		}
		if result.Status != primitive.PullFound || len(result.GetMessageExts()) != 1 {
			return fmt.Errorf("nothing at %d of %v: %v", offset, queue, result)
		}
	}
	for !w.complete() && ctx.Err() == nil {
		request, err := c.Poll(ctx, time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return err
		}
		w.take(request.GetMsgList())
		c.ACK(ctx, request, consumer.ConsumeSuccess)
	}
	if err := c.Shutdown(); err != nil {
		return err
	}
	return w.verdict()
}
