import java.io.Serializable;
import java.time.Duration;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.CoGroupFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/** The queries 4 to 9 of Nexmark by Flink's DataStream API; its tables are those of benches/nexmark/flink.py. */
final class NexmarkStreams {
    private static final Duration TEN = Duration.ofSeconds(10);

    /** A bid; times are in ms since 1970. */
    public static class Bid {
        public long auction;
        public long bidder;
        public long price;
        public long time;
        public String extra;
    }

    /** An auction. */
    public static class Auction {
        public long id;
        public String itemName;
        public String description;
        public long initialBid;
        public long reserve;
        public long time;
        public long expires;
        public long seller;
        public long category;
        public String extra;
    }

    /** An auction with its highest bid so far, and the price before, or 0. */
    public static class Winner {
        public Auction auction;
        public Bid bid;
        public long before;
    }

    /** Returns the result of a query. Results that are updated have the last row of each key. */
    static DataStream<Row> result(String query, StreamTableEnvironment tables) {
        return switch (query) {
            case "q4" -> averages(tables);
            case "q5" -> hotItems(tables);
            case "q6" -> sellers(tables);
            case "q7" -> highest(tables);
            case "q8" -> newUsers(tables);
            case "q9" -> winningBids(tables);
            default -> throw new IllegalArgumentException(query);
        };
    }

    private static DataStream<Row> averages(StreamTableEnvironment tables) {
        return winners(tables, false)
                .keyBy(winner -> winner.auction.category)
                .process(new Average())
                .returns(row("category", Types.LONG, "final", Types.DOUBLE));
    }

    private static DataStream<Row> hotItems(StreamTableEnvironment tables) {
        return bids(tables, "auction, `dateTime`")
                .keyBy(bid -> bid.auction)
                .window(SlidingEventTimeWindows.of(TEN, Duration.ofSeconds(2)))
                .aggregate(new Count(), new Counted())
                .keyBy(counted -> counted.f2)
                .process(new Hottest())
                .returns(row("auction", Types.LONG, "num", Types.LONG, "window_end", Types.LOCAL_DATE_TIME));
    }

    private static DataStream<Row> sellers(StreamTableEnvironment tables) {
        return winners(tables, false)
                .keyBy(winner -> winner.auction.seller)
                .process(new LastTen())
                .returns(row("seller", Types.LONG, "avg_price", Types.DOUBLE));
    }

    private static DataStream<Row> highest(StreamTableEnvironment tables) {
        return bids(tables, "auction, `dateTime`, bidder, price, extra")
                .windowAll(TumblingEventTimeWindows.of(TEN))
                .aggregate(new Highest())
                .flatMap(
                        (List<Bid> bids, Collector<Row> rows) ->
                                bids.forEach(
                                        bid ->
                                                rows.collect(
                                                        Row.of(bid.auction, bid.bidder, bid.price, time(bid.time), bid.extra))))
                .returns(
                        row("auction", Types.LONG, "bidder", Types.LONG, "price", Types.LONG, "dateTime",
                                Types.LOCAL_DATE_TIME, "extra", Types.STRING));
    }

    private static DataStream<Row> newUsers(StreamTableEnvironment tables) {
        DataStream<Tuple3<Long, String, Long>> people =
                rows(tables, "id, name, `dateTime`", "person")
                        .map(row -> Tuple3.of((Long) row.getField(0), (String) row.getField(1), millis(row.getField(2))))
                        .returns(Types.TUPLE(Types.LONG, Types.STRING, Types.LONG));
        DataStream<Tuple2<Long, Long>> sellers =
                rows(tables, "seller, `dateTime`", "auction")
                        .map(row -> Tuple2.of((Long) row.getField(0), millis(row.getField(1))))
                        .returns(Types.TUPLE(Types.LONG, Types.LONG));
        return timed(people, person -> person.f2)
                .coGroup(timed(sellers, seller -> seller.f1))
                .where(person -> person.f0)
                .equalTo(seller -> seller.f0)
                .window(TumblingEventTimeWindows.of(TEN))
                .apply(new Both(), Types.TUPLE(Types.LONG, Types.STRING))
                .process(new WindowStart())
                .returns(row("id", Types.LONG, "name", Types.STRING, "window_start", Types.LOCAL_DATE_TIME));
    }

    private static DataStream<Row> winningBids(StreamTableEnvironment tables) {
        return winners(tables, true)
                .map(
                        winner -> {
                            Auction auction = winner.auction;
                            Bid bid = winner.bid;
                            return Row.of(
                                    auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve,
                                    time(auction.time), time(auction.expires), auction.seller, auction.category, auction.extra,
                                    bid.bidder, bid.price, time(bid.time), bid.extra);
                        })
                .returns(
                        row("id", Types.LONG, "itemName", Types.STRING, "description", Types.STRING, "initialBid", Types.LONG,
                                "reserve", Types.LONG, "dateTime", Types.LOCAL_DATE_TIME, "expires", Types.LOCAL_DATE_TIME,
                                "seller", Types.LONG, "category", Types.LONG, "extra", Types.STRING, "bidder", Types.LONG,
                                "price", Types.LONG, "dateTime_bid", Types.LOCAL_DATE_TIME, "extra_bid", Types.STRING));
    }

    /** Returns auctions with their highest bids, each time that a bid is the highest one. */
    private static DataStream<Winner> winners(StreamTableEnvironment tables, boolean wide) {
        String texts = wide ? ", itemName, description, initialBid, reserve, extra" : "";
        DataStream<Auction> auctions =
                rows(tables, "id, `dateTime`, expires, seller, category" + texts, "auction")
                        .map(
                                row -> {
                                    Auction auction = new Auction();
                                    auction.id = (Long) row.getField(0);
                                    auction.time = millis(row.getField(1));
                                    auction.expires = millis(row.getField(2));
                                    auction.seller = (Long) row.getField(3);
                                    auction.category = (Long) row.getField(4);
                                    if (wide) {
                                        auction.itemName = (String) row.getField(5);
                                        auction.description = (String) row.getField(6);
                                        auction.initialBid = (Long) row.getField(7);
                                        auction.reserve = (Long) row.getField(8);
                                        auction.extra = (String) row.getField(9);
                                    }
                                    return auction;
                                });
        String bidder = wide ? "auction, `dateTime`, bidder, price, extra" : "auction, `dateTime`, bidder, price";
        return timed(auctions, auction -> auction.time)
                .keyBy(auction -> auction.id)
                .connect(bids(tables, bidder).keyBy(bid -> bid.auction))
                .process(new WhileOpen());
    }

    private static DataStream<Bid> bids(StreamTableEnvironment tables, String columns) {
        DataStream<Bid> bids = rows(tables, columns, "bid")
                .map(
                        row -> {
                            Bid bid = new Bid();
                            bid.auction = (Long) row.getField(0);
                            bid.time = millis(row.getField(1));
                            bid.bidder = row.getArity() > 2 ? (Long) row.getField(2) : 0;
                            bid.price = row.getArity() > 3 ? (Long) row.getField(3) : 0;
                            bid.extra = row.getArity() > 4 ? (String) row.getField(4) : null;
                            return bid;
                        });
        return timed(bids, bid -> bid.time);
    }

    /** Makes watermarks here: of a source that has not begun, a table's may be idle, so that another one's end closes all windows. */
    private static <T> DataStream<T> timed(DataStream<T> rows, Timed<T> time) {
        return rows.assignTimestampsAndWatermarks(
                WatermarkStrategy.<T>forBoundedOutOfOrderness(Duration.ofSeconds(4))
                        .withTimestampAssigner((row, before) -> time.of(row)));
    }

    /** The time of a row, in ms since 1970. */
    private interface Timed<T> extends Serializable {
        long of(T row);
    }

    private static DataStream<Row> rows(StreamTableEnvironment tables, String columns, String kind) {
        return tables.toDataStream(tables.sqlQuery("SELECT " + columns + " FROM " + kind));
    }

    private static TypeInformation<Row> row(Object... namesAndTypes) {
        String[] names = new String[namesAndTypes.length / 2];
        TypeInformation<?>[] types = new TypeInformation<?>[names.length];
        for (int column = 0; column < names.length; column++) {
            names[column] = (String) namesAndTypes[2 * column];
            types[column] = (TypeInformation<?>) namesAndTypes[2 * column + 1];
        }
        return Types.ROW_NAMED(names, types);
    }

    private static long millis(Object time) {
        return ((LocalDateTime) time).toInstant(ZoneOffset.UTC).toEpochMilli();
    }

    private static LocalDateTime time(long millis) {
        return LocalDateTime.ofEpochSecond(
                Math.floorDiv(millis, 1000L), (int) Math.floorMod(millis, 1000L) * 1_000_000, ZoneOffset.UTC);
    }

    /** An auction's highest bid while it runs; bids may come before their auction. */
    private static final class WhileOpen extends KeyedCoProcessFunction<Long, Auction, Bid, Winner> {
        private ValueState<Auction> auctions;
        private ValueState<Bid> highest;
        private ListState<Bid> early;

        @Override
        public void open(OpenContext context) {
            auctions = getRuntimeContext().getState(new ValueStateDescriptor<>("auction", Auction.class));
            highest = getRuntimeContext().getState(new ValueStateDescriptor<>("highest", Bid.class));
            early = getRuntimeContext().getListState(new ListStateDescriptor<>("early", Bid.class));
        }

        @Override
        public void processElement1(Auction auction, Context context, Collector<Winner> winners) throws Exception {
            auctions.update(auction);
            context.timerService().registerEventTimeTimer(auction.expires);
            for (Bid bid : early.get()) {
                compare(auction, bid, winners);
            }
            early.clear();
        }

        @Override
        public void processElement2(Bid bid, Context context, Collector<Winner> winners) throws Exception {
            Auction auction = auctions.value();
            if (auction != null) {
                compare(auction, bid, winners);
            } else if (bid.time > context.timerService().currentWatermark()) {
                early.add(bid);
                context.timerService().registerEventTimeTimer(bid.time);
            }
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<Winner> winners) throws Exception {
            Auction auction = auctions.value();
            if (auction == null) {
                List<Bid> later = new ArrayList<>();
                for (Bid bid : early.get()) {
                    if (bid.time > time) {
                        later.add(bid);
                    }
                }
                early.update(later);
            } else if (auction.expires <= time) {
                auctions.clear();
                highest.clear();
            }
        }

        private void compare(Auction auction, Bid bid, Collector<Winner> winners) throws Exception {
            if (bid.time < auction.time || bid.time > auction.expires) {
                return;
            }
            Bid best = highest.value();
            if (best == null || bid.price > best.price || bid.price == best.price && bid.time < best.time) {
                highest.update(bid);
                Winner winner = new Winner();
                winner.auction = auction;
                winner.bid = bid;
                winner.before = best == null ? 0 : best.price;
                winners.collect(winner);
            }
        }
    }

    /** The average of the highest prices of a category. */
    private static final class Average extends KeyedProcessFunction<Long, Winner, Row> {
        private ValueState<Tuple2<Long, Long>> totals;

        @Override
        public void open(OpenContext context) {
            TypeInformation<Tuple2<Long, Long>> type = Types.TUPLE(Types.LONG, Types.LONG);
            totals = getRuntimeContext().getState(new ValueStateDescriptor<>("totals", type));
        }

        @Override
        public void processElement(Winner winner, Context context, Collector<Row> rows) throws Exception {
            Tuple2<Long, Long> total = totals.value();
            long sum = (total == null ? 0 : total.f0) + winner.bid.price - winner.before;
            long count = (total == null ? 0 : total.f1) + (winner.before == 0 ? 1 : 0);
            totals.update(Tuple2.of(sum, count));
            rows.collect(Row.of(winner.auction.category, (double) sum / count));
        }
    }

    /** The average price of a seller's ten auctions that end last. */
    private static final class LastTen extends KeyedProcessFunction<Long, Winner, Row> {
        private MapState<Long, Tuple2<Long, Long>> auctions;

        @Override
        public void open(OpenContext context) {
            TypeInformation<Tuple2<Long, Long>> type = Types.TUPLE(Types.LONG, Types.LONG);
            auctions = getRuntimeContext().getMapState(new MapStateDescriptor<>("auctions", Types.LONG, type));
        }

        @Override
        public void processElement(Winner winner, Context context, Collector<Row> rows) throws Exception {
            auctions.put(winner.auction.id, Tuple2.of(winner.auction.expires, winner.bid.price));
            long sum = 0;
            int count = 0;
            Map.Entry<Long, Tuple2<Long, Long>> first = null;
            for (Map.Entry<Long, Tuple2<Long, Long>> auction : auctions.entries()) {
                sum += auction.getValue().f1;
                count++;
                if (first == null || before(auction, first)) {
                    first = auction;
                }
            }
            if (count > 10) {
                sum -= first.getValue().f1;
                count--;
                auctions.remove(first.getKey());
            }
            rows.collect(Row.of(winner.auction.seller, (double) sum / count));
        }

        private static boolean before(Map.Entry<Long, Tuple2<Long, Long>> auction, Map.Entry<Long, Tuple2<Long, Long>> other) {
            int order = Long.compare(auction.getValue().f0, other.getValue().f0);
            return order < 0 || order == 0 && auction.getKey() < other.getKey();
        }
    }

    private static final class Count implements AggregateFunction<Bid, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Bid bid, Long count) {
            return count + 1;
        }

        @Override
        public Long getResult(Long count) {
            return count;
        }

        @Override
        public Long merge(Long count, Long other) {
            return count + other;
        }
    }

    /** Adds the auction and the end of the window to a count. */
    private static final class Counted
            extends ProcessWindowFunction<Long, Tuple3<Long, Long, Long>, Long, TimeWindow> {
        @Override
        public void process(
                Long auction, Context context, Iterable<Long> counts, Collector<Tuple3<Long, Long, Long>> rows) {
            rows.collect(Tuple3.of(auction, counts.iterator().next(), context.window().getEnd()));
        }
    }

    /** The auctions with most bids of a window; its key is its end. */
    private static final class Hottest extends KeyedProcessFunction<Long, Tuple3<Long, Long, Long>, Row> {
        private ValueState<Long> most;
        private ListState<Long> auctions;

        @Override
        public void open(OpenContext context) {
            most = getRuntimeContext().getState(new ValueStateDescriptor<>("most", Types.LONG));
            auctions = getRuntimeContext().getListState(new ListStateDescriptor<>("auctions", Types.LONG));
        }

        @Override
        public void processElement(Tuple3<Long, Long, Long> counted, Context context, Collector<Row> rows)
                throws Exception {
            Long number = most.value();
            if (number == null) {
                context.timerService().registerEventTimeTimer(counted.f2);
            }
            if (number == null || counted.f1 > number) {
                most.update(counted.f1);
                auctions.update(new ArrayList<>(List.of(counted.f0)));
            } else if (counted.f1.equals(number)) {
                auctions.add(counted.f0);
            }
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<Row> rows) throws Exception {
            for (Long auction : auctions.get()) {
                rows.collect(Row.of(auction, most.value(), NexmarkStreams.time(context.getCurrentKey())));
            }
            most.clear();
            auctions.clear();
        }
    }

    /** The highest bids. */
    private static final class Highest implements AggregateFunction<Bid, List<Bid>, List<Bid>> {
        @Override
        public List<Bid> createAccumulator() {
            return new ArrayList<>();
        }

        @Override
        public List<Bid> add(Bid bid, List<Bid> bids) {
            if (!bids.isEmpty() && bid.price > bids.get(0).price) {
                bids.clear();
            }
            if (bids.isEmpty() || bid.price == bids.get(0).price) {
                bids.add(bid);
            }
            return bids;
        }

        @Override
        public List<Bid> getResult(List<Bid> bids) {
            return bids;
        }

        @Override
        public List<Bid> merge(List<Bid> bids, List<Bid> others) {
            others.forEach(bid -> add(bid, bids));
            return bids;
        }
    }

    /** People of a window with an auction in it. */
    private static final class Both implements CoGroupFunction<Tuple3<Long, String, Long>, Tuple2<Long, Long>, Tuple2<Long, String>> {
        @Override
        public void coGroup(
                Iterable<Tuple3<Long, String, Long>> people,
                Iterable<Tuple2<Long, Long>> sellers,
                Collector<Tuple2<Long, String>> rows) {
            if (sellers.iterator().hasNext()) {
                people.forEach(person -> rows.collect(Tuple2.of(person.f0, person.f1)));
            }
        }
    }

    /** Adds the start of a window, whose rows have its last millisecond as their time. */
    private static final class WindowStart
            extends org.apache.flink.streaming.api.functions.ProcessFunction<Tuple2<Long, String>, Row> {
        @Override
        public void processElement(Tuple2<Long, String> person, Context context, Collector<Row> rows) {
            rows.collect(Row.of(person.f0, person.f1, time(context.timestamp() + 1 - TEN.toMillis())));
        }
    }

    private NexmarkStreams() {}
}
