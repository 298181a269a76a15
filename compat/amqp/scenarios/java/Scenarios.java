import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;

/** What a program for RabbitMQ sees of a server, as ../scenarios.py: one line for each scenario. */
public class Scenarios {
    static String url;

    static Connection connected() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(url);
        factory.setAutomaticRecoveryEnabled(false);
        return factory.newConnection();
    }

    interface Act {
        void on(Channel channel) throws Exception;
    }

    static String declare(Channel channel, String name, Map<String, Object> arguments) throws IOException {
        return channel.queueDeclare(name, false, false, false, arguments).getQueue();
    }

    /** A queue of the connection's own. */
    static String own(Channel channel, Map<String, Object> arguments) throws IOException {
        return channel.queueDeclare("", false, true, false, arguments).getQueue();
    }

    static void send(Channel channel, String exchange, String key, String body) throws IOException {
        send(channel, exchange, key, body, new AMQP.BasicProperties());
    }

    static void send(Channel channel, String exchange, String key, String body, AMQP.BasicProperties properties)
            throws IOException {
        channel.basicPublish(exchange, key, properties, body.getBytes());
    }

    static AMQP.BasicProperties.Builder with() {
        return new AMQP.BasicProperties.Builder();
    }

    static AMQP.BasicProperties persistent() {
        return with().deliveryMode(2).build();
    }

    static String star(byte[] body, boolean redelivered) {
        return new String(body) + (redelivered ? "*" : "");
    }

    /** All that is ready, acknowledged; what was delivered before has a star. */
    static List<String> take(Channel channel, String queue) throws IOException {
        List<String> found = new ArrayList<>();
        for (GetResponse one = channel.basicGet(queue, false); one != null; one = channel.basicGet(queue, false)) {
            channel.basicAck(one.getEnvelope().getDeliveryTag(), false);
            found.add(star(one.getBody(), one.getEnvelope().isRedeliver()));
        }
        return found;
    }

    static String taken(Channel channel, String queue) throws IOException {
        return String.join(",", take(channel, queue));
    }

    static String waitFor(Channel channel, String queue, int count) throws Exception {
        List<String> found = new ArrayList<>();
        while (found.size() < count) {
            found.addAll(take(channel, queue));
            Thread.sleep(10);
        }
        return String.join(",", found);
    }

    static String code(ShutdownSignalException error) {
        Object method = error.getReason();
        if (method instanceof AMQP.Channel.Close) {
            return "channel " + ((AMQP.Channel.Close) method).getReplyCode();
        }
        return "connection " + ((AMQP.Connection.Close) method).getReplyCode();
    }

    /** How the server refuses something that is tried on a channel of its own. */
    static String code(Connection connection, Act act) throws Exception {
        Channel channel = connection.createChannel();
        try {
            act.on(channel);
        } catch (IOException error) {
            return code((ShutdownSignalException) error.getCause());
        } catch (AlreadyClosedException error) {
            return code(error);
        }
        return "allowed";
    }

    /** As code, for what has no answer: the channel is closed, for it is refused. */
    static void closing(Channel channel, Act act) throws Exception {
        BlockingQueue<ShutdownSignalException> closed = new LinkedBlockingQueue<>();
        channel.addShutdownListener(closed::add);
        act.on(channel);
        throw new IOException(closed.take());
    }

    static BlockingQueue<Delivery> consume(Channel channel, String queue, String tag, boolean autoAck, boolean exclusive,
            Map<String, Object> arguments) throws IOException {
        BlockingQueue<Delivery> found = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, autoAck, tag, false, exclusive, arguments, (_tag, one) -> found.add(one), _tag -> { });
        return found;
    }

    static BlockingQueue<Delivery> consume(Channel channel, String queue, boolean autoAck) throws IOException {
        return consume(channel, queue, "", autoAck, false, null);
    }

    static List<Delivery> next(BlockingQueue<Delivery> deliveries, int count) throws Exception {
        List<Delivery> found = new ArrayList<>();
        while (found.size() < count) {
            found.add(deliveries.take());
        }
        return found;
    }

    static String texts(List<Delivery> messages) {
        return messages.stream().map(one -> star(one.getBody(), one.getEnvelope().isRedeliver()))
            .collect(Collectors.joining(" "));
    }

    static String passive(Connection connection, String queue) throws Exception {
        return code(connection, channel -> channel.queueDeclarePassive(queue));
    }

    static long tag(Delivery one) {
        return one.getEnvelope().getDeliveryTag();
    }

    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> map = new HashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            map.put((String) pairs[at], pairs[at + 1]);
        }
        return map;
    }

    // ---- scenarios

    static String propertiesComeBack() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            String queue = own(channel, null);
            send(channel, "", queue, "body", with().contentType("application/x").contentEncoding("none")
                .headers(map("text", "a", "number", 7, "yes", true, "list", List.of(1, "b"), "table", map("deep", -1)))
                .deliveryMode(2).priority(3).correlationId("c").replyTo("r").expiration("600000").messageId("m")
                .timestamp(new Date(1700000000000L)).type("t").appId("a").build());
            GetResponse came = channel.basicGet(queue, true);
            AMQP.BasicProperties said = came.getProps();
            Map<String, Object> headers = said.getHeaders();
            List<?> list = (List<?>) headers.get("list");
            String exchange = came.getEnvelope().getExchange();
            Object[] all = {new String(came.getBody()), exchange.isEmpty() ? "-" : exchange, said.getContentType(),
                said.getContentEncoding(), headers.get("text"), headers.get("number"), headers.get("yes"), list.get(0),
                list.get(1), ((Map<?, ?>) headers.get("table")).get("deep"), said.getDeliveryMode(), said.getPriority(),
                said.getCorrelationId(), said.getReplyTo(), said.getExpiration(), said.getMessageId(),
                said.getTimestamp().getTime() / 1000, said.getType(), said.getAppId()};
            return List.of(all).stream().map(Object::toString).collect(Collectors.joining(" "));
        }
    }

    static String bodiesOfEverySize() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            channel.queueDeclare("sizes", true, false, false, null);
            List<String> lines = new ArrayList<>();
            for (int size : new int[] {0, 1, 8, 4088, 131064, 131065, 1 << 20, 9_000_000}) {
                byte[] body = new byte[size];
                for (int number = 0; number < size; number++) {
                    body[number] = (byte) (number % 251);
                }
                channel.basicPublish("", "sizes", persistent(), body);
                channel.waitForConfirmsOrDie();
                byte[] came = channel.basicGet("sizes", true).getBody();
                StringBuilder text = new StringBuilder();
                for (byte one : MessageDigest.getInstance("SHA-256").digest(came)) {
                    text.append(String.format("%02x", one));
                }
                lines.add(came.length + ":" + text.substring(0, 8));
            }
            channel.queueDelete("sizes");
            return String.join(" ", lines);
        }
    }

    static String exchangesRoute() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            for (String kind : List.of("direct", "fanout", "topic", "headers")) {
                channel.exchangeDeclare("x-" + kind, kind, false, true, null);
            }
            Object[][] bindings = {
                {"x-direct", "a", null}, {"x-fanout", "", null}, {"x-topic", "run.*.done", null}, {"x-topic", "run.#", null},
                {"x-topic", "#.done", null}, {"x-headers", "", map("x-match", "all", "a", 1, "b", "two")},
                {"x-headers", "", map("x-match", "any", "a", 1, "b", "two")}};
            List<String> queues = new ArrayList<>();
            for (Object[] one : bindings) {
                String queue = own(channel, null);
                @SuppressWarnings("unchecked")
                Map<String, Object> arguments = (Map<String, Object>) one[2];
                channel.queueBind(queue, (String) one[0], (String) one[1], arguments);
                queues.add(queue);
            }
            for (String key : List.of("a", "b", "run", "run.1", "run.1.done", "run.1.2.done", "done")) {
                for (String exchange : List.of("x-direct", "x-fanout", "x-topic")) {
                    send(channel, exchange, key, key);
                }
            }
            send(channel, "x-headers", "", "both", with().headers(map("a", 1, "b", "two")).build());
            send(channel, "x-headers", "", "one", with().headers(map("a", 1)).build());
            send(channel, "x-headers", "", "none", with().headers(map("c", 1)).build());
            List<String> said = new ArrayList<>();
            for (String queue : queues) {
                said.add(taken(channel, queue));
            }
            return String.join(" | ", said);
        }
    }

    static String exchangesAreBoundToExchanges() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.exchangeDeclare("first", BuiltinExchangeType.FANOUT);
            channel.exchangeDeclare("second", BuiltinExchangeType.TOPIC);
            channel.exchangeBind("second", "first", "");
            channel.exchangeBind("first", "second", "#");
            String queue = own(channel, null);
            channel.queueBind(queue, "second", "a.#");
            channel.queueBind(queue, "second", "#.b");
            send(channel, "first", "a.b", "once");
            send(channel, "first", "c", "not");
            channel.exchangeUnbind("second", "first", "");
            send(channel, "first", "a.b", "gone");
            String said = taken(channel, queue);
            channel.exchangeDelete("first");
            channel.exchangeDelete("second");
            return said;
        }
    }

    static String anAlternateExchangeGetsWhatNoQueueGot() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.exchangeDeclare("others", "fanout");
            channel.exchangeDeclare("main", "direct", false, false, map("alternate-exchange", "others"));
            String mine = own(channel, null);
            String rest = own(channel, null);
            channel.queueBind(mine, "main", "mine");
            channel.queueBind(rest, "others", "");
            send(channel, "main", "mine", "1");
            send(channel, "main", "other", "2");
            String said = taken(channel, mine) + " | " + taken(channel, rest);
            channel.exchangeDelete("main");
            channel.exchangeDelete("others");
            return said;
        }
    }

    static String whatNobodyGetsIsReturnedAndConfirmed() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            send(channel, "", "nowhere", "dropped");
            channel.waitForConfirmsOrDie();
            BlockingQueue<String> back = new LinkedBlockingQueue<>();
            channel.addReturnListener(one ->
                back.add(one.getReplyCode() + " " + one.getReplyText() + " " + new String(one.getBody())));
            channel.basicPublish("", "nowhere", true, null, "back".getBytes());
            channel.waitForConfirmsOrDie();
            return back.take();
        }
    }

    static String whatIsGivenBackComesFirst() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.queueDeclare("back", true, false, false, null);
            for (String body : List.of("1", "2", "3", "4")) {
                send(channel, "", "back", body, persistent());
            }
            long[] tags = new long[3];
            for (int at = 0; at < 3; at++) {
                tags[at] = channel.basicGet("back", false).getEnvelope().getDeliveryTag();
            }
            channel.basicAck(tags[0], false);
            channel.basicNack(tags[2], true, true);
            String again = new String(channel.basicGet("back", false).getBody());
            channel.close();
            channel = connection.createChannel();
            String said = again + " | " + taken(channel, "back");
            channel.queueDelete("back");
            return said;
        }
    }

    static String recoverGivesAllBack() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            String queue = own(channel, null);
            for (String body : List.of("1", "2")) {
                send(channel, "", queue, body);
            }
            for (int at = 0; at < 2; at++) {
                channel.basicGet(queue, false);
            }
            channel.basicRecover(true);
            return waitFor(channel, queue, 2);
        }
    }

    static String deadLettersSayWhereTheyDied() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.exchangeDeclare("dead", "direct");
            String grave = own(channel, null);
            channel.queueBind(grave, "dead", "other");
            String[] dead = {"x-dead-letter-exchange", "dead", "x-dead-letter-routing-key", "other"};
            declare(channel, "live", map(dead[0], dead[1], dead[2], dead[3], "x-max-length", 1));
            for (String body : List.of("1", "2")) {
                send(channel, "", "live", body);
            }
            channel.basicReject(channel.basicGet("live", false).getEnvelope().getDeliveryTag(), false);
            declare(channel, "short", map(dead[0], dead[1], dead[2], dead[3], "x-message-ttl", 1));
            send(channel, "", "short", "3");
            List<String> lines = new ArrayList<>();
            while (lines.size() < 3) {
                GetResponse one = channel.basicGet(grave, true);
                if (one == null) {
                    Thread.sleep(10);
                    continue;
                }
                Map<String, Object> headers = one.getProps().getHeaders();
                Map<?, ?> death = (Map<?, ?>) ((List<?>) headers.get("x-death")).get(0);
                String exchange = death.get("exchange").toString();
                lines.add(new String(one.getBody()) + " " + death.get("reason") + " " + death.get("queue") + " "
                    + death.get("count") + " " + (exchange.isEmpty() ? "-" : exchange) + " "
                    + ((List<?>) death.get("routing-keys")).get(0) + " " + headers.get("x-first-death-reason") + " "
                    + one.getEnvelope().getExchange() + " " + one.getEnvelope().getRoutingKey());
            }
            channel.queueDelete("live");
            channel.queueDelete("short");
            channel.exchangeDelete("dead");
            lines.sort(null);
            return String.join(" | ", lines);
        }
    }

    static String aFullQueueDropsOrRefuses() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            String dropping = own(channel, map("x-max-length", 2));
            String refusing = own(channel, map("x-max-length", 2, "x-overflow", "reject-publish"));
            int refused = 0;
            for (String body : List.of("1", "2", "3", "4")) {
                send(channel, "", dropping, body);
                channel.waitForConfirms();
                send(channel, "", refusing, body);
                refused += channel.waitForConfirms() ? 0 : 1;
            }
            return taken(channel, dropping) + " | " + taken(channel, refusing) + " | " + refused;
        }
    }

    static String messagesExpire() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            String queue = own(channel, null);
            channel.confirmSelect();
            send(channel, "", queue, "short", with().expiration("1").build());
            send(channel, "", queue, "long");
            // Before that the queue may not count them.
            channel.waitForConfirmsOrDie();
            while (channel.messageCount(queue) > 1) {
                Thread.sleep(10);
            }
            String bad = code(connection, other ->
                closing(other, it -> send(it, "", "any", "", with().expiration("soon").build())));
            return taken(channel, queue) + " | " + bad;
        }
    }

    static String consumersHaveTurns() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            String queue = own(channel, null);
            List<BlockingQueue<Delivery>> found = new ArrayList<>();
            for (int at = 0; at < 3; at++) {
                found.add(consume(channel, queue, true));
            }
            for (int number = 0; number < 9; number++) {
                send(channel, "", queue, "" + number);
            }
            List<String> lines = new ArrayList<>();
            for (BlockingQueue<Delivery> deliveries : found) {
                lines.add(texts(next(deliveries, 3)));
            }
            lines.sort(null);
            return String.join(" | ", lines);
        }
    }

    static String prefetchBoundsWhatAConsumerHas() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            String queue = own(channel, null);
            for (int number = 0; number < 5; number++) {
                send(channel, "", queue, "" + number);
            }
            channel.basicQos(2);
            BlockingQueue<Delivery> deliveries = consume(channel, queue, false);
            List<Delivery> found = next(deliveries, 2);
            long before = channel.messageCount(queue);
            channel.basicAck(tag(found.get(1)), true);
            found.addAll(next(deliveries, 2));
            return before + " " + texts(found) + " " + channel.messageCount(queue);
        }
    }

    static String prioritiesOfConsumers() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            String queue = own(channel, null);
            BlockingQueue<Delivery> low = consume(channel, queue, true);
            channel.basicQos(2);
            BlockingQueue<Delivery> high = consume(channel, queue, "", false, false, map("x-priority", 10));
            for (int number = 0; number < 4; number++) {
                send(channel, "", queue, "" + number);
            }
            return texts(next(high, 2)) + " | " + texts(next(low, 2));
        }
    }

    static String oneConsumerIsActive() throws Exception {
        try (Connection connection = connected(); Connection other = connected()) {
            Channel channel = connection.createChannel();
            declare(channel, "single", map("x-single-active-consumer", true));
            BlockingQueue<Delivery> first = consume(channel, "single", false);
            Channel waiting = other.createChannel();
            BlockingQueue<Delivery> second = consume(waiting, "single", false);
            for (String body : List.of("1", "2")) {
                send(channel, "", "single", body);
            }
            List<Delivery> had = next(first, 2);
            int before = second.size();
            channel.close();
            String said = texts(had) + " | " + before + " | " + texts(next(second, 2));
            waiting.queueDelete("single");
            return said;
        }
    }

    static String anExclusiveQueueIsOfOneConnection() throws Exception {
        try (Connection other = connected()) {
            Connection connection = connected();
            connection.createChannel().queueDeclare("mine", false, true, false, null);
            String declared = passive(other, "mine");
            String consumed = code(other, channel -> consume(channel, "mine", false));
            String deleted = code(other, channel -> channel.queueDelete("mine"));
            connection.close();
            return String.join(", ", declared, consumed, deleted, passive(other, "mine"));
        }
    }

    static String anExclusiveConsumerIsAlone() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            String queue = own(channel, null);
            consume(channel, queue, "", false, true, null);
            return code(connection, other -> consume(other, queue, false));
        }
    }

    static String queuesGoWhenNobodyUsesThem() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.queueDeclare("auto", false, false, true, null);
            consume(channel, "auto", "tag", false, false, null);
            channel.basicCancel("tag");
            String gone = passive(connection, "auto");
            declare(channel, "brief", map("x-expires", 50));
            while (passive(connection, "brief").equals("allowed")) {
                Thread.sleep(200);
            }
            return gone + ", expired";
        }
    }

    static String aConsumerHearsThatItsQueueGoes() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            declare(channel, "going", null);
            BlockingQueue<String> cancelled = new LinkedBlockingQueue<>();
            channel.basicConsume("going", false, "tag", (tag, one) -> { }, tag -> cancelled.add(tag));
            connection.createChannel().queueDelete("going");
            return cancelled.take();
        }
    }

    static String queuesAreCountedPurgedAndDeleted() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            declare(channel, "counted", null);
            for (String body : List.of("1", "2", "3")) {
                send(channel, "", "counted", body);
            }
            channel.basicGet("counted", false);
            AMQP.Queue.DeclareOk declared = channel.queueDeclarePassive("counted");
            String full = code(connection, other -> other.queueDelete("counted", false, true));
            Channel usedChannel = connection.createChannel();
            usedChannel.basicQos(1);
            consume(usedChannel, "counted", false);
            String used = code(connection, other -> other.queueDelete("counted", true, false));
            usedChannel.close();
            int purged = channel.queuePurge("counted").getMessageCount();
            int deleted = channel.queueDelete("counted").getMessageCount();
            int again = channel.queueDelete("counted").getMessageCount();
            return declared.getMessageCount() + " " + declared.getConsumerCount() + ", " + full + ", " + used + ", " + purged
                + " " + deleted + " " + again;
        }
    }

    static String whatIsAskedAgainHasToBeTheSame() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.queueDeclare("same", true, false, false, null);
            channel.exchangeDeclare("same", "direct");
            List<Act> acts = List.of(
                it -> it.queueDeclare("same", false, false, false, null),
                it -> it.queueDeclare("same", true, false, false, map("x-max-length", 1)),
                it -> it.queueDeclare("same", true, false, true, null),
                it -> it.exchangeDeclare("same", "fanout"),
                it -> it.queueDeclare("same", true, false, false, null));
            List<String> said = new ArrayList<>();
            for (Act act : acts) {
                said.add(code(connection, act));
            }
            channel.queueDelete("same");
            channel.exchangeDelete("same");
            return String.join(", ", said);
        }
    }

    static String whatIsNotThereIsRefused() throws Exception {
        try (Connection connection = connected()) {
            String queue = own(connection.createChannel(), null);
            List<Act> acts = List.of(
                it -> it.queueDeclarePassive("missing"),
                it -> it.exchangeDeclarePassive("missing"),
                it -> it.queueBind(queue, "missing", "a"),
                it -> consume(it, "missing", false),
                it -> it.basicGet("missing", false),
                it -> it.queuePurge("missing"),
                it -> declare(it, "amq.mine", null),
                it -> it.exchangeDeclare("amq.mine", "direct"),
                it -> it.exchangeDelete("amq.direct"),
                it -> it.queueBind(queue, "", "a"),
                it -> closing(it, channel -> send(channel, "missing", "a", "")),
                it -> closing(it, channel -> channel.basicAck(7, false)));
            List<String> said = new ArrayList<>();
            for (Act act : acts) {
                said.add(code(connection, act));
            }
            return String.join(", ", said);
        }
    }

    static String repliesNeedNoQueue() throws Exception {
        try (Connection connection = connected(); Connection other = connected()) {
            Channel asking = connection.createChannel();
            Channel answering = other.createChannel();
            String queue = own(answering, null);
            BlockingQueue<Delivery> replies = consume(asking, "amq.rabbitmq.reply-to", true);
            send(asking, "", queue, "question", with().replyTo("amq.rabbitmq.reply-to").correlationId("1").build());
            GetResponse question;
            do {
                question = answering.basicGet(queue, true);
            } while (question == null);
            String address = question.getProps().getReplyTo();
            send(answering, "", address, "answer");
            return address.startsWith("amq.rabbitmq.reply-to.") + " " + texts(next(replies, 1));
        }
    }

    static String carbonCopiesAreRouted() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            String[] queues = {own(channel, null), own(channel, null), own(channel, null)};
            send(channel, "", queues[0], "all",
                with().headers(map("CC", List.of(queues[1]), "BCC", List.of(queues[2]))).build());
            List<String> seen = new ArrayList<>();
            for (String queue : queues) {
                GetResponse came = channel.basicGet(queue, true);
                Map<String, Object> headers = came.getProps().getHeaders();
                seen.add(new String(came.getBody()) + " " + headers.containsKey("CC") + " " + headers.containsKey("BCC"));
            }
            return String.join(" | ", seen);
        }
    }

    static String whatIsInFlightComesAgainWhenAConnectionEnds() throws Exception {
        try (Connection connection = connected()) {
            Channel channel = connection.createChannel();
            channel.queueDeclare("flight", true, false, false, null);
            Connection other = connected();
            Channel theirs = other.createChannel();
            for (String body : List.of("1", "2", "3")) {
                send(theirs, "", "flight", body, persistent());
            }
            List<Delivery> found = next(consume(theirs, "flight", false), 3);
            theirs.basicAck(tag(found.get(0)), false);
            theirs.queueDeclarePassive("flight");
            other.close();
            String said = waitFor(channel, "flight", 2);
            channel.queueDelete("flight");
            return said;
        }
    }

    public static void main(String[] arguments) throws Exception {
        url = arguments[0];
        Map<String, Callable<String>> scenarios = new LinkedHashMap<>();
        scenarios.put("properties come back", Scenarios::propertiesComeBack);
        scenarios.put("bodies of every size", Scenarios::bodiesOfEverySize);
        scenarios.put("exchanges route", Scenarios::exchangesRoute);
        scenarios.put("exchanges are bound to exchanges", Scenarios::exchangesAreBoundToExchanges);
        scenarios.put("an alternate exchange gets what no queue got", Scenarios::anAlternateExchangeGetsWhatNoQueueGot);
        scenarios.put("what nobody gets is returned and confirmed", Scenarios::whatNobodyGetsIsReturnedAndConfirmed);
        scenarios.put("what is given back comes first", Scenarios::whatIsGivenBackComesFirst);
        scenarios.put("recover gives all back", Scenarios::recoverGivesAllBack);
        scenarios.put("dead letters say where they died", Scenarios::deadLettersSayWhereTheyDied);
        scenarios.put("a full queue drops or refuses", Scenarios::aFullQueueDropsOrRefuses);
        scenarios.put("messages expire", Scenarios::messagesExpire);
        scenarios.put("consumers have turns", Scenarios::consumersHaveTurns);
        scenarios.put("prefetch bounds what a consumer has", Scenarios::prefetchBoundsWhatAConsumerHas);
        scenarios.put("priorities of consumers", Scenarios::prioritiesOfConsumers);
        scenarios.put("one consumer is active", Scenarios::oneConsumerIsActive);
        scenarios.put("an exclusive queue is of one connection", Scenarios::anExclusiveQueueIsOfOneConnection);
        scenarios.put("an exclusive consumer is alone", Scenarios::anExclusiveConsumerIsAlone);
        scenarios.put("queues go when nobody uses them", Scenarios::queuesGoWhenNobodyUsesThem);
        scenarios.put("a consumer hears that its queue goes", Scenarios::aConsumerHearsThatItsQueueGoes);
        scenarios.put("queues are counted purged and deleted", Scenarios::queuesAreCountedPurgedAndDeleted);
        scenarios.put("what is asked again has to be the same", Scenarios::whatIsAskedAgainHasToBeTheSame);
        scenarios.put("what is not there is refused", Scenarios::whatIsNotThereIsRefused);
        scenarios.put("replies need no queue", Scenarios::repliesNeedNoQueue);
        scenarios.put("carbon copies are routed", Scenarios::carbonCopiesAreRouted);
        scenarios.put("what is in flight comes again when a connection ends",
            Scenarios::whatIsInFlightComesAgainWhenAConnectionEnds);
        for (Map.Entry<String, Callable<String>> scenario : scenarios.entrySet()) {
            System.out.println(scenario.getKey() + ": " + scenario.getValue().call());
        }
    }
}
