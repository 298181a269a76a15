// What a program for RabbitMQ sees of a server, as ../scenarios.py: one line for each scenario.
//
// go run . URL
package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

// connected gives a connection, which is to be closed.
func connected() *amqp.Connection {
	return must(amqp.Dial(os.Args[1]))
}

func declare(channel *amqp.Channel, name string, arguments amqp.Table) string {
	return must(channel.QueueDeclare(name, false, false, false, false, arguments)).Name
}

// private declares a queue of the connection's own.
func private(channel *amqp.Channel, arguments amqp.Table) string {
	return must(channel.QueueDeclare("", false, false, true, false, arguments)).Name
}

func send(channel *amqp.Channel, exchange, key, body string, more ...amqp.Publishing) {
	message := amqp.Publishing{}
	if len(more) > 0 {
		message = more[0]
	}
	message.Body = []byte(body)
	check(channel.Publish(exchange, key, false, false, message))
}

// confirmed publishes and waits; whether the server took it.
func confirmed(channel *amqp.Channel, queue string, message amqp.Publishing) bool {
	deferred := must(channel.PublishWithDeferredConfirm("", queue, false, false, message))
	return deferred.Wait()
}

func star(body []byte, redelivered bool) string {
	if redelivered {
		return string(body) + "*"
	}
	return string(body)
}

// take gives all that is ready, acknowledged; what was delivered before has a star.
func take(channel *amqp.Channel, queue string) []string {
	found := []string{}
	for {
		message, there, err := channel.Get(queue, false)
		check(err)
		if !there {
			return found
		}
		check(message.Ack(false))
		found = append(found, star(message.Body, message.Redelivered))
	}
}

func taken(channel *amqp.Channel, queue string) string {
	return strings.Join(take(channel, queue), ",")
}

func waitFor(channel *amqp.Channel, queue string, count int) string {
	found := []string{}
	for len(found) < count {
		found = append(found, take(channel, queue)...)
		time.Sleep(10 * time.Millisecond)
	}
	return strings.Join(found, ",")
}

// code says how the server refuses something that is tried on a channel of its own.
func code(connection *amqp.Connection, act func(channel *amqp.Channel) error) string {
	channel := must(connection.Channel())
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	err := act(channel)
	if err == errUnanswered {
		err = <-closed
	}
	var refused *amqp.Error
	if errors.As(err, &refused) {
		return fmt.Sprintf("channel %d", refused.Code)
	}
	check(err)
	return "allowed"
}

// errUnanswered is of what has no answer: the channel is closed, for it is refused.
var errUnanswered = errors.New("there is no answer")

func consume(channel *amqp.Channel, queue, tag string, autoAck, exclusive bool, arguments amqp.Table) <-chan amqp.Delivery {
	return must(channel.Consume(queue, tag, autoAck, exclusive, false, false, arguments))
}

func texts(messages []amqp.Delivery) string {
	found := []string{}
	for _, message := range messages {
		found = append(found, star(message.Body, message.Redelivered))
	}
	return strings.Join(found, " ")
}

func next(deliveries <-chan amqp.Delivery, count int) []amqp.Delivery {
	found := []amqp.Delivery{}
	for len(found) < count {
		found = append(found, <-deliveries)
	}
	return found
}

func ready(channel *amqp.Channel, queue string) amqp.Queue {
	return must(channel.QueueDeclarePassive(queue, false, false, false, false, nil))
}

// passive says whether a queue is there.
func passive(connection *amqp.Connection, queue string) string {
	return code(connection, func(channel *amqp.Channel) error {
		_, err := channel.QueueDeclarePassive(queue, false, false, false, false, nil)
		return err
	})
}

// ---- scenarios

func propertiesComeBack() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	queue := private(channel, nil)
	send(channel, "", queue, "body", amqp.Publishing{
		ContentType:     "application/x",
		ContentEncoding: "none",
		Headers: amqp.Table{
			"text": "a", "number": int32(7), "yes": true,
			"list": []interface{}{int32(1), "b"}, "table": amqp.Table{"deep": int32(-1)},
		},
		DeliveryMode: 2, Priority: 3, CorrelationId: "c", ReplyTo: "r", Expiration: "600000",
		MessageId: "m", Timestamp: time.Unix(1700000000, 0), Type: "t", AppId: "a",
	})
	came, _, err := channel.Get(queue, true)
	check(err)
	exchange := came.Exchange
	if exchange == "" {
		exchange = "-"
	}
	list := came.Headers["list"].([]interface{})
	return fmt.Sprint(string(came.Body), " ", exchange, " ", came.ContentType, " ", came.ContentEncoding, " ",
		came.Headers["text"], " ", came.Headers["number"], " ", came.Headers["yes"], " ", list[0], " ", list[1], " ",
		came.Headers["table"].(amqp.Table)["deep"], " ", came.DeliveryMode, " ", came.Priority, " ", came.CorrelationId, " ",
		came.ReplyTo, " ", came.Expiration, " ", came.MessageId, " ", came.Timestamp.Unix(), " ", came.Type, " ", came.AppId)
}

func bodiesOfEverySize() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	check(channel.Confirm(false))
	must(channel.QueueDeclare("sizes", true, false, false, false, nil))
	lines := []string{}
	for _, size := range []int{0, 1, 8, 4088, 131064, 131065, 1 << 20, 9_000_000} {
		body := make([]byte, size)
		for number := range body {
			body[number] = byte(number % 251)
		}
		confirmed(channel, "sizes", amqp.Publishing{Body: body, DeliveryMode: 2})
		came, _, err := channel.Get("sizes", true)
		check(err)
		lines = append(lines, fmt.Sprintf("%d:%x", len(came.Body), sha256.Sum256(came.Body))[:len(fmt.Sprint(size))+9])
	}
	must(channel.QueueDelete("sizes", false, false, false))
	return strings.Join(lines, " ")
}

func exchangesRoute() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	for _, kind := range []string{"direct", "fanout", "topic", "headers"} {
		check(channel.ExchangeDeclare("x-"+kind, kind, false, true, false, false, nil))
	}
	bindings := []struct {
		exchange, key string
		arguments     amqp.Table
	}{
		{"x-direct", "a", nil}, {"x-fanout", "", nil}, {"x-topic", "run.*.done", nil}, {"x-topic", "run.#", nil},
		{"x-topic", "#.done", nil}, {"x-headers", "", amqp.Table{"x-match": "all", "a": int32(1), "b": "two"}},
		{"x-headers", "", amqp.Table{"x-match": "any", "a": int32(1), "b": "two"}},
	}
	queues := []string{}
	for _, one := range bindings {
		queue := private(channel, nil)
		check(channel.QueueBind(queue, one.key, one.exchange, false, one.arguments))
		queues = append(queues, queue)
	}
	for _, key := range []string{"a", "b", "run", "run.1", "run.1.done", "run.1.2.done", "done"} {
		for _, exchange := range []string{"x-direct", "x-fanout", "x-topic"} {
			send(channel, exchange, key, key)
		}
	}
	send(channel, "x-headers", "", "both", amqp.Publishing{Headers: amqp.Table{"a": int32(1), "b": "two"}})
	send(channel, "x-headers", "", "one", amqp.Publishing{Headers: amqp.Table{"a": int32(1)}})
	send(channel, "x-headers", "", "none", amqp.Publishing{Headers: amqp.Table{"c": int32(1)}})
	said := []string{}
	for _, queue := range queues {
		said = append(said, taken(channel, queue))
	}
	return strings.Join(said, " | ")
}

func exchangesAreBoundToExchanges() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	check(channel.ExchangeDeclare("first", "fanout", false, false, false, false, nil))
	check(channel.ExchangeDeclare("second", "topic", false, false, false, false, nil))
	check(channel.ExchangeBind("second", "", "first", false, nil))
	check(channel.ExchangeBind("first", "#", "second", false, nil))
	queue := private(channel, nil)
	check(channel.QueueBind(queue, "a.#", "second", false, nil))
	check(channel.QueueBind(queue, "#.b", "second", false, nil))
	send(channel, "first", "a.b", "once")
	send(channel, "first", "c", "not")
	check(channel.ExchangeUnbind("second", "", "first", false, nil))
	send(channel, "first", "a.b", "gone")
	said := taken(channel, queue)
	check(channel.ExchangeDelete("first", false, false))
	check(channel.ExchangeDelete("second", false, false))
	return said
}

func anAlternateExchangeGetsWhatNoQueueGot() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	check(channel.ExchangeDeclare("others", "fanout", false, false, false, false, nil))
	arguments := amqp.Table{"alternate-exchange": "others"}
	check(channel.ExchangeDeclare("main", "direct", false, false, false, false, arguments))
	mine, rest := private(channel, nil), private(channel, nil)
	check(channel.QueueBind(mine, "mine", "main", false, nil))
	check(channel.QueueBind(rest, "", "others", false, nil))
	send(channel, "main", "mine", "1")
	send(channel, "main", "other", "2")
	said := taken(channel, mine) + " | " + taken(channel, rest)
	check(channel.ExchangeDelete("main", false, false))
	check(channel.ExchangeDelete("others", false, false))
	return said
}

func whatNobodyGetsIsReturnedAndConfirmed() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	check(channel.Confirm(false))
	confirmed(channel, "nowhere", amqp.Publishing{Body: []byte("dropped")})
	returns := channel.NotifyReturn(make(chan amqp.Return, 1))
	check(channel.Publish("", "nowhere", true, false, amqp.Publishing{Body: []byte("back")}))
	back := <-returns
	return fmt.Sprint(back.ReplyCode, " ", back.ReplyText, " ", string(back.Body))
}

func whatIsGivenBackComesFirst() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	must(channel.QueueDeclare("back", true, false, false, false, nil))
	for _, body := range []string{"1", "2", "3", "4"} {
		send(channel, "", "back", body, amqp.Publishing{DeliveryMode: 2})
	}
	tags := []uint64{}
	for at := 0; at < 3; at++ {
		message, _, err := channel.Get("back", false)
		check(err)
		tags = append(tags, message.DeliveryTag)
	}
	check(channel.Ack(tags[0], false))
	check(channel.Nack(tags[2], true, true))
	again, _, err := channel.Get("back", false)
	check(err)
	check(channel.Close())
	channel = must(connection.Channel())
	said := string(again.Body) + " | " + taken(channel, "back")
	must(channel.QueueDelete("back", false, false, false))
	return said
}

func recoverGivesAllBack() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	queue := private(channel, nil)
	for _, body := range []string{"1", "2"} {
		send(channel, "", queue, body)
	}
	for at := 0; at < 2; at++ {
		_, _, err := channel.Get(queue, false)
		check(err)
	}
	check(channel.Recover(true))
	return waitFor(channel, queue, 2)
}

func deadLettersSayWhereTheyDied() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	check(channel.ExchangeDeclare("dead", "direct", false, false, false, false, nil))
	grave := private(channel, nil)
	check(channel.QueueBind(grave, "other", "dead", false, nil))
	arguments := func(key string, value interface{}) amqp.Table {
		return amqp.Table{"x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "other", key: value}
	}
	declare(channel, "live", arguments("x-max-length", int32(1)))
	for _, body := range []string{"1", "2"} {
		send(channel, "", "live", body)
	}
	message, _, err := channel.Get("live", false)
	check(err)
	check(message.Reject(false))
	declare(channel, "short", arguments("x-message-ttl", int32(1)))
	send(channel, "", "short", "3")
	lines := []string{}
	for len(lines) < 3 {
		message, there, err := channel.Get(grave, true)
		check(err)
		if !there {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		death := message.Headers["x-death"].([]interface{})[0].(amqp.Table)
		exchange := death["exchange"]
		if exchange == "" {
			exchange = "-"
		}
		lines = append(lines, fmt.Sprint(string(message.Body), " ", death["reason"], " ", death["queue"], " ", death["count"], " ", exchange, " ",
			death["routing-keys"].([]interface{})[0], " ", message.Headers["x-first-death-reason"], " ", message.Exchange, " ", message.RoutingKey))
	}
	for _, queue := range []string{"live", "short"} {
		must(channel.QueueDelete(queue, false, false, false))
	}
	check(channel.ExchangeDelete("dead", false, false))
	sort.Strings(lines)
	return strings.Join(lines, " | ")
}

func aFullQueueDropsOrRefuses() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	check(channel.Confirm(false))
	dropping := private(channel, amqp.Table{"x-max-length": int32(2)})
	refusing := private(channel, amqp.Table{"x-max-length": int32(2), "x-overflow": "reject-publish"})
	refused := 0
	for _, body := range []string{"1", "2", "3", "4"} {
		confirmed(channel, dropping, amqp.Publishing{Body: []byte(body)})
		if !confirmed(channel, refusing, amqp.Publishing{Body: []byte(body)}) {
			refused++
		}
	}
	return fmt.Sprint(taken(channel, dropping), " | ", taken(channel, refusing), " | ", refused)
}

func messagesExpire() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	queue := private(channel, nil)
	check(channel.Confirm(false))
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation, 2))
	send(channel, "", queue, "short", amqp.Publishing{Expiration: "1"})
	send(channel, "", queue, "long")
	// Before that the queue may not count them.
	for at := 0; at < 2; at++ {
		<-confirms
	}
	for ready(channel, queue).Messages > 1 {
		time.Sleep(10 * time.Millisecond)
	}
	bad := code(connection, func(channel *amqp.Channel) error {
		check(channel.Publish("", "any", false, false, amqp.Publishing{Expiration: "soon"}))
		return errUnanswered
	})
	return taken(channel, queue) + " | " + bad
}

func consumersHaveTurns() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	queue := private(channel, nil)
	found := []<-chan amqp.Delivery{}
	for at := 0; at < 3; at++ {
		found = append(found, consume(channel, queue, "", true, false, nil))
	}
	for number := 0; number < 9; number++ {
		send(channel, "", queue, fmt.Sprint(number))
	}
	lines := []string{}
	for _, deliveries := range found {
		lines = append(lines, texts(next(deliveries, 3)))
	}
	sort.Strings(lines)
	return strings.Join(lines, " | ")
}

func prefetchBoundsWhatAConsumerHas() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	queue := private(channel, nil)
	for number := 0; number < 5; number++ {
		send(channel, "", queue, fmt.Sprint(number))
	}
	check(channel.Qos(2, 0, false))
	deliveries := consume(channel, queue, "", false, false, nil)
	found := next(deliveries, 2)
	before := ready(channel, queue).Messages
	check(found[1].Ack(true))
	found = append(found, next(deliveries, 2)...)
	return fmt.Sprint(before, " ", texts(found), " ", ready(channel, queue).Messages)
}

func prioritiesOfConsumers() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	queue := private(channel, nil)
	low := consume(channel, queue, "", true, false, nil)
	check(channel.Qos(2, 0, false))
	high := consume(channel, queue, "", false, false, amqp.Table{"x-priority": int32(10)})
	for number := 0; number < 4; number++ {
		send(channel, "", queue, fmt.Sprint(number))
	}
	return texts(next(high, 2)) + " | " + texts(next(low, 2))
}

func oneConsumerIsActive() string {
	connection, other := connected(), connected()
	defer connection.Close()
	defer other.Close()
	channel := must(connection.Channel())
	declare(channel, "single", amqp.Table{"x-single-active-consumer": true})
	first := consume(channel, "single", "", false, false, nil)
	waiting := must(other.Channel())
	second := consume(waiting, "single", "", false, false, nil)
	for _, body := range []string{"1", "2"} {
		send(channel, "", "single", body)
	}
	had := next(first, 2)
	before := len(second)
	check(channel.Close())
	said := fmt.Sprint(texts(had), " | ", before, " | ", texts(next(second, 2)))
	must(waiting.QueueDelete("single", false, false, false))
	return said
}

func anExclusiveQueueIsOfOneConnection() string {
	connection, other := connected(), connected()
	defer other.Close()
	channel := must(connection.Channel())
	must(channel.QueueDeclare("mine", false, false, true, false, nil))
	declared := passive(other, "mine")
	consumed := code(other, func(channel *amqp.Channel) error {
		_, err := channel.Consume("mine", "", false, false, false, false, nil)
		return err
	})
	deleted := code(other, func(channel *amqp.Channel) error {
		_, err := channel.QueueDelete("mine", false, false, false)
		return err
	})
	check(connection.Close())
	return strings.Join([]string{declared, consumed, deleted, passive(other, "mine")}, ", ")
}

func anExclusiveConsumerIsAlone() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	queue := private(channel, nil)
	consume(channel, queue, "", false, true, nil)
	return code(connection, func(channel *amqp.Channel) error {
		_, err := channel.Consume(queue, "", false, false, false, false, nil)
		return err
	})
}

func queuesGoWhenNobodyUsesThem() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	must(channel.QueueDeclare("auto", false, true, false, false, nil))
	consume(channel, "auto", "tag", false, false, nil)
	check(channel.Cancel("tag", false))
	gone := passive(connection, "auto")
	declare(channel, "brief", amqp.Table{"x-expires": int32(50)})
	for passive(connection, "brief") == "allowed" {
		time.Sleep(200 * time.Millisecond)
	}
	return gone + ", expired"
}

func aConsumerHearsThatItsQueueGoes() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	declare(channel, "going", nil)
	cancelled := channel.NotifyCancel(make(chan string, 1))
	consume(channel, "going", "tag", false, false, nil)
	must(must(connection.Channel()).QueueDelete("going", false, false, false))
	return <-cancelled
}

func queuesAreCountedPurgedAndDeleted() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	declare(channel, "counted", nil)
	for _, body := range []string{"1", "2", "3"} {
		send(channel, "", "counted", body)
	}
	_, _, err := channel.Get("counted", false)
	check(err)
	declared := ready(channel, "counted")
	full := code(connection, func(channel *amqp.Channel) error {
		_, err := channel.QueueDelete("counted", false, true, false)
		return err
	})
	usedChannel := must(connection.Channel())
	check(usedChannel.Qos(1, 0, false))
	consume(usedChannel, "counted", "", false, false, nil)
	used := code(connection, func(channel *amqp.Channel) error {
		_, err := channel.QueueDelete("counted", true, false, false)
		return err
	})
	check(usedChannel.Close())
	purged := must(channel.QueuePurge("counted", false))
	deleted := must(channel.QueueDelete("counted", false, false, false))
	again := must(channel.QueueDelete("counted", false, false, false))
	return fmt.Sprint(declared.Messages, " ", declared.Consumers, ", ", full, ", ", used, ", ", purged, " ", deleted, " ", again)
}

func whatIsAskedAgainHasToBeTheSame() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	queue := func(durable, autoDelete bool, arguments amqp.Table) func(*amqp.Channel) error {
		return func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclare("same", durable, autoDelete, false, false, arguments)
			return err
		}
	}
	check(queue(true, false, nil)(channel))
	check(channel.ExchangeDeclare("same", "direct", false, false, false, false, nil))
	acts := []func(*amqp.Channel) error{
		queue(false, false, nil),
		queue(true, false, amqp.Table{"x-max-length": int32(1)}),
		queue(true, true, nil),
		func(channel *amqp.Channel) error {
			return channel.ExchangeDeclare("same", "fanout", false, false, false, false, nil)
		},
		queue(true, false, nil),
	}
	said := []string{}
	for _, act := range acts {
		said = append(said, code(connection, act))
	}
	must(channel.QueueDelete("same", false, false, false))
	check(channel.ExchangeDelete("same", false, false))
	return strings.Join(said, ", ")
}

func whatIsNotThereIsRefused() string {
	connection := connected()
	defer connection.Close()
	queue := private(must(connection.Channel()), nil)
	acts := []func(*amqp.Channel) error{
		func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclarePassive("missing", false, false, false, false, nil)
			return err
		},
		func(channel *amqp.Channel) error {
			return channel.ExchangeDeclarePassive("missing", "direct", false, false, false, false, nil)
		},
		func(channel *amqp.Channel) error { return channel.QueueBind(queue, "a", "missing", false, nil) },
		func(channel *amqp.Channel) error {
			_, err := channel.Consume("missing", "", false, false, false, false, nil)
			return err
		},
		func(channel *amqp.Channel) error {
			_, _, err := channel.Get("missing", false)
			return err
		},
		func(channel *amqp.Channel) error {
			_, err := channel.QueuePurge("missing", false)
			return err
		},
		func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclare("amq.mine", false, false, false, false, nil)
			return err
		},
		func(channel *amqp.Channel) error {
			return channel.ExchangeDeclare("amq.mine", "direct", false, false, false, false, nil)
		},
		func(channel *amqp.Channel) error { return channel.ExchangeDelete("amq.direct", false, false) },
		func(channel *amqp.Channel) error { return channel.QueueBind(queue, "a", "", false, nil) },
		func(channel *amqp.Channel) error {
			check(channel.Publish("missing", "a", false, false, amqp.Publishing{}))
			return errUnanswered
		},
		func(channel *amqp.Channel) error {
			check(channel.Ack(7, false))
			return errUnanswered
		},
	}
	said := []string{}
	for _, act := range acts {
		said = append(said, code(connection, act))
	}
	return strings.Join(said, ", ")
}

func repliesNeedNoQueue() string {
	connection, other := connected(), connected()
	defer connection.Close()
	defer other.Close()
	asking, answering := must(connection.Channel()), must(other.Channel())
	queue := private(answering, nil)
	replies := consume(asking, "amq.rabbitmq.reply-to", "", true, false, nil)
	send(asking, "", queue, "question", amqp.Publishing{ReplyTo: "amq.rabbitmq.reply-to", CorrelationId: "1"})
	for {
		question, there, err := answering.Get(queue, true)
		check(err)
		if !there {
			continue
		}
		hidden := strings.HasPrefix(question.ReplyTo, "amq.rabbitmq.reply-to.")
		send(answering, "", question.ReplyTo, "answer")
		return fmt.Sprint(hidden, " ", texts(next(replies, 1)))
	}
}

func carbonCopiesAreRouted() string {
	connection := connected()
	defer connection.Close()
	channel := must(connection.Channel())
	queues := []string{private(channel, nil), private(channel, nil), private(channel, nil)}
	headers := amqp.Table{"CC": []interface{}{queues[1]}, "BCC": []interface{}{queues[2]}}
	send(channel, "", queues[0], "all", amqp.Publishing{Headers: headers})
	seen := []string{}
	for _, queue := range queues {
		came, _, err := channel.Get(queue, true)
		check(err)
		_, cc := came.Headers["CC"]
		_, bcc := came.Headers["BCC"]
		seen = append(seen, fmt.Sprint(string(came.Body), " ", cc, " ", bcc))
	}
	return strings.Join(seen, " | ")
}

func whatIsInFlightComesAgainWhenAConnectionEnds() string {
	connection, other := connected(), connected()
	defer connection.Close()
	must(must(connection.Channel()).QueueDeclare("flight", true, false, false, false, nil))
	channel := must(other.Channel())
	for _, body := range []string{"1", "2", "3"} {
		send(channel, "", "flight", body, amqp.Publishing{DeliveryMode: 2})
	}
	found := next(consume(channel, "flight", "", false, false, nil), 3)
	check(found[0].Ack(false))
	must(channel.QueueDeclarePassive("flight", true, false, false, false, nil))
	check(other.Close())
	channel = must(connection.Channel())
	said := waitFor(channel, "flight", 2)
	must(channel.QueueDelete("flight", false, false, false))
	return said
}

func main() {
	scenarios := []struct {
		name string
		run  func() string
	}{
		{"properties come back", propertiesComeBack},
		{"bodies of every size", bodiesOfEverySize},
		{"exchanges route", exchangesRoute},
		{"exchanges are bound to exchanges", exchangesAreBoundToExchanges},
		{"an alternate exchange gets what no queue got", anAlternateExchangeGetsWhatNoQueueGot},
		{"what nobody gets is returned and confirmed", whatNobodyGetsIsReturnedAndConfirmed},
		{"what is given back comes first", whatIsGivenBackComesFirst},
		{"recover gives all back", recoverGivesAllBack},
		{"dead letters say where they died", deadLettersSayWhereTheyDied},
		{"a full queue drops or refuses", aFullQueueDropsOrRefuses},
		{"messages expire", messagesExpire},
		{"consumers have turns", consumersHaveTurns},
		{"prefetch bounds what a consumer has", prefetchBoundsWhatAConsumerHas},
		{"priorities of consumers", prioritiesOfConsumers},
		{"one consumer is active", oneConsumerIsActive},
		{"an exclusive queue is of one connection", anExclusiveQueueIsOfOneConnection},
		{"an exclusive consumer is alone", anExclusiveConsumerIsAlone},
		{"queues go when nobody uses them", queuesGoWhenNobodyUsesThem},
		{"a consumer hears that its queue goes", aConsumerHearsThatItsQueueGoes},
		{"queues are counted purged and deleted", queuesAreCountedPurgedAndDeleted},
		{"what is asked again has to be the same", whatIsAskedAgainHasToBeTheSame},
		{"what is not there is refused", whatIsNotThereIsRefused},
		{"replies need no queue", repliesNeedNoQueue},
		{"carbon copies are routed", carbonCopiesAreRouted},
		{"what is in flight comes again when a connection ends", whatIsInFlightComesAgainWhenAConnectionEnds},
	}
	for _, scenario := range scenarios {
		fmt.Printf("%s: %s\n", scenario.name, scenario.run())
	}
}
