// RocketMQ's gRPC client in Rust at work: ENDPOINTS SCENARIO... ; each says what it saw.
// This version has simple consumers and producers; no push consumers, no recall.
use std::collections::{BTreeMap, HashMap, HashSet};
use std::env;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use tokio::time::sleep;

const COUNT: usize = 12;
const INVISIBLE: Duration = Duration::from_secs(11);

fn options() -> ClientOption {
    let mut made = ClientOption::default();
    made.set_access_url(env::args().nth(1).expect("ENDPOINTS"));
    made.set_enable_tls(env::var("WITH_TLS").is_ok());
    if let (Ok(access), Ok(secret)) = (env::var("ACCESS_KEY"), env::var("SECRET_KEY")) {
        made.set_access_key(access);
        made.set_secret_key(secret);
    }
    // It is the deadline, too: a broker holds a request for 20 seconds at most.
    made.set_long_polling_timeout(Duration::from_secs(25));
    made
}

fn message(topic: &str, number: usize) -> MessageBuilder {
    MessageBuilder::builder()
        .set_topic(topic)
        .set_body(format!("body-{number}").into_bytes())
        .set_tag(if number % 2 == 1 { "TagA" } else { "TagB" })
        .set_keys(vec![format!("key-{number}")])
        .set_properties(HashMap::from([("n", number.to_string())]))
}

async fn producer(topic: &str) -> Producer {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    let mut made = Producer::new(option, options()).unwrap();
    made.start().await.unwrap();
    made
}

fn number_of(view: &MessageView) -> usize {
    view.properties()["n"].parse().unwrap()
}

fn body_of(view: &MessageView) -> String {
    String::from_utf8(view.body().to_vec()).unwrap()
}

type Got = Arc<Mutex<Vec<(MessageView, SystemTime, Instant)>>>;

// A simple consumer that receives all the time, and acknowledges what `settles` says.
async fn receive(topic: &'static str, tags: &str, settles: fn(&MessageView) -> bool) -> Got {
    let mut option = SimpleConsumerOption::default();
    option.set_consumer_group(format!("G-{topic}"));
    option.set_topics(vec![topic]);
    let mut consumer = SimpleConsumer::new(option, options()).unwrap();
    consumer.start().await.unwrap();
    let expression = FilterExpression::new(FilterType::Tag, tags);
    let got = Got::default();
    let noted = got.clone();
    tokio::spawn(async move {
        loop {
            let received = consumer.receive_with(topic, &expression, 16, INVISIBLE).await;
            for view in received.unwrap_or_default() {
                let is_done = settles(&view);
                if is_done {
                    consumer.ack(&view).await.unwrap();
                }
                let now = (SystemTime::now(), Instant::now());
                noted.lock().unwrap().push((view, now.0, now.1));
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    // A new group begins behind the newest message: it must have asked once.
    sleep(Duration::from_secs(2)).await;
    got
}

async fn until(got: &Got, count: usize, seconds: u64) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while got.lock().unwrap().len() < count && Instant::now() < deadline {
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_millis(500)).await;
}

fn said(claim: bool) -> &'static str {
    if claim {
        "True"
    } else {
        "False"
    }
}

fn quoted(texts: impl IntoIterator<Item = String>) -> String {
    let texts: Vec<String> = texts.into_iter().map(|text| format!("'{text}'")).collect();
    format!("[{}]", texts.join(", "))
}

fn summary(got: &Got, wanted: usize) -> String {
    let mut found: Vec<String> = got.lock().unwrap().iter().map(|one| body_of(&one.0)).collect();
    found.sort();
    let mut expected: Vec<String> = (0..wanted).map(|number| format!("body-{number}")).collect();
    expected.sort();
    let count = found.len();
    format!("{count} messages, as sent: {}", said(found == expected))
}

async fn simple() -> String {
    let got = receive("simple", "*", |_| true).await;
    let from = producer("simple").await;
    let mut ids = HashSet::new();
    for number in 0..COUNT {
        let receipt = from.send(message("simple", number).build().unwrap()).await.unwrap();
        ids.insert(receipt.message_id().to_string());
    }
    until(&got, COUNT, 30).await;
    let views = got.lock().unwrap();
    let kept = ids.len() == COUNT && views.iter().all(|one| ids.contains(one.0.message_id()));
    let whole = views.iter().all(|(view, _, _)| {
        view.topic() == "simple"
            && view.delivery_attempt() == 1
            && view.keys() == [format!("key-{}", number_of(view))]
            && view.tag().is_some()
    });
    drop(views);
    let same = summary(&got, COUNT);
    format!("{same}, ids kept {}, whole {}", said(kept), said(whole))
}

async fn tags() -> String {
    let got = receive("tags", "TagA", |_| true).await;
    let from = producer("tags").await;
    for number in 0..COUNT {
        from.send(message("tags", number).build().unwrap()).await.unwrap();
    }
    until(&got, COUNT / 2, 30).await;
    let views = got.lock().unwrap();
    let names: HashSet<String> =
        views.iter().map(|one| one.0.tag().unwrap_or("none").to_string()).collect();
    format!("{} messages, tags {}", views.len(), quoted(names))
}

// This client changes no invisible time: what it does not acknowledge comes when that is over.
async fn again() -> String {
    let got = receive("again", "*", |view| view.delivery_attempt() > 1).await;
    let from = producer("again").await;
    from.send(message("again", 0).build().unwrap()).await.unwrap();
    until(&got, 2, 40).await;
    let found = got.lock().unwrap();
    let attempts: Vec<i32> = found.iter().map(|one| one.0.delivery_attempt()).collect();
    let late = found.len() > 1 && found[1].2 - found[0].2 >= INVISIBLE - Duration::from_millis(500);
    format!("attempts {attempts:?}, not early {}", said(late))
}

async fn fifo() -> String {
    let got = receive("fifo", "*", |_| true).await;
    let from = producer("fifo").await;
    for number in 0..COUNT {
        let made = message("fifo", number).set_message_group(format!("group-{}", number % 3));
        from.send(made.build().unwrap()).await.unwrap();
    }
    until(&got, COUNT, 30).await;
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    let mut in_order = true;
    for (view, _, _) in got.lock().unwrap().iter() {
        let group = view.message_group().unwrap_or("none").to_string();
        let before = last.insert(group, number_of(view));
        in_order = in_order && before.map_or(true, |one| one < number_of(view));
    }
    format!("{}, in order {}", summary(&got, COUNT), said(in_order))
}

async fn delay() -> String {
    let got = receive("delay", "*", |_| true).await;
    let from = producer("delay").await;
    let mut due = Vec::new();
    for number in 0..4 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let at = now + 2 + number as u64;
        due.push(UNIX_EPOCH + Duration::from_secs(at));
        let made = message("delay", number).set_delivery_timestamp(at as i64);
        from.send(made.build().unwrap()).await.unwrap();
    }
    until(&got, 4, 30).await;
    let views = got.lock().unwrap();
    let early = views.iter().filter(|one| one.1 < due[number_of(&one.0)]).count();
    drop(views);
    format!("{}, early {early}", summary(&got, 4))
}

// Committed, rolled back, and two that only the broker's question decides.
async fn transaction() -> String {
    let got = receive("transaction", "*", |_| true).await;
    let mut option = ProducerOption::default();
    option.set_topics(vec!["transaction"]);
    let mut from = Producer::new_transaction_producer(
        option,
        options(),
        Box::new(|_, view| {
            if number_of(&view) % 2 == 0 {
                TransactionResolution::COMMIT
            } else {
                TransactionResolution::ROLLBACK
            }
        }),
    )
    .unwrap();
    from.start().await.unwrap();
    for number in 0..4 {
        let made = message("transaction", number).enable_transaction();
        let half = from.send_transaction_message(made.build().unwrap()).await.unwrap();
        match number {
            0 => half.commit().await.unwrap(),
            1 => half.rollback().await.unwrap(),
            _ => {}
        }
    }
    until(&got, 2, 60).await;
    sleep(Duration::from_secs(2)).await;
    // A broker that asks before it knows of the commit delivers twice.
    let found = got.lock().unwrap();
    let bodies: BTreeMap<String, ()> = found.iter().map(|one| (body_of(&one.0), ())).collect();
    format!("came {}", quoted(bodies.into_keys()))
}

async fn run(name: String) {
    let result = match name.as_str() {
        "simple" => tokio::spawn(simple()),
        "tags" => tokio::spawn(tags()),
        "again" => tokio::spawn(again()),
        "fifo" => tokio::spawn(fifo()),
        "delay" => tokio::spawn(delay()),
        "transaction" => tokio::spawn(transaction()),
        _ => panic!("no scenario {name}"),
    }
    .await;
    let found = result.unwrap_or_else(|problem| format!("FAILED {problem}"));
    println!("{name}: {found}");
}

#[tokio::main]
async fn main() {
    // Side by side: most of them wait for something.
    let running: Vec<_> = env::args().skip(2).map(|name| tokio::spawn(run(name))).collect();
    for one in running {
        one.await.unwrap();
    }
    std::process::exit(0);
}
