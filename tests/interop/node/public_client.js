// RocketMQ's gRPC client in Node (npm `rocketmq-client-nodejs`) at work; each scenario says what it
// saw. Run in the folder of its node_modules: public_client.js ENDPOINTS SCENARIO...
'use strict';

const load = name => require(require.resolve(name, { paths: [ process.cwd() ] }));
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = load('rocketmq-client-nodejs');

const [ endpoints, ...names ] = process.argv.slice(2);
const COUNT = 12;
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
// Patient: a send that is repeated for lack of an answer would be there twice.
const common = { endpoints, namespace: '', requestTimeout: 20000 };
if (process.env.ACCESS_KEY) {
  common.sessionCredentials = { accessKey: process.env.ACCESS_KEY, accessSecret: process.env.SECRET_KEY };
}
if (process.env.WITH_TLS) common.sslEnabled = true;
const quiet = { info() {}, warn() {}, error() {}, debug() {} };
common.logger = quiet;

function message(topic, number, fields = {}) {
  return {
    topic,
    body: Buffer.from(`body-${number}`),
    tag: number % 2 ? 'TagA' : 'TagB',
    keys: [ `key-${number}` ],
    properties: new Map([[ 'n', `${number}` ]]),
    ...fields,
  };
}

async function startedProducer(topic, options = {}) {
  const producer = new Producer({ ...common, topic, ...options });
  await producer.startup();
  return producer;
}

async function until(condition, seconds = 30) {
  const deadline = Date.now() + seconds * 1000;
  while (!condition() && Date.now() < deadline) await pause(50);
  await pause(500);
}

// A simple consumer that receives all the time: what it got is in `got`.
async function startedReceiver(topic, { decide, expression = '*' } = {}) {
  const consumer = new SimpleConsumer({
    ...common,
    consumerGroup: `G-${topic}`,
    subscriptions: new Map([[ topic, expression ]]),
    awaitDuration: 5000,
  });
  await consumer.startup();
  const receiver = { consumer, got: [], isOver: false };
  const settle = decide || (async view => await consumer.ack(view));
  receiver.loop = (async () => {
    while (!receiver.isOver) {
      let views = [];
      try {
        views = await consumer.receive(16, 10000);
      } catch (error) {
        if (!receiver.isOver && !/no new message|settings is null/i.test(error.message)) console.error(error.message);
        await pause(200);
      }
      for (const view of views) {
        receiver.got.push({ view, at: Date.now() });
        await settle(view, consumer);
      }
    }
  })();
  receiver.bodies = () => receiver.got.map(({ view }) => `${view.body}`).sort();
  receiver.close = async () => {
    receiver.isOver = true;
    await Promise.race([ receiver.loop, pause(8000) ]);
    await consumer.shutdown();
  };
  // A new group begins behind the newest message: it must have asked once.
  await pause(1500);
  return receiver;
}

function summary(bodies, count = COUNT) {
  const expected = Array.from({ length: count }, (_, i) => `body-${i}`).sort();
  return `${bodies.length} messages, as sent: ${bodies.sort().join() === expected.join() ? 'True' : 'False'}`;
}

const said = value => (value ? 'True' : 'False');

async function simple() {
  const receiver = await startedReceiver('simple');
  const producer = await startedProducer('simple');
  const ids = new Set();
  for (let i = 0; i < COUNT; i++) ids.add((await producer.send(message('simple', i))).messageId);
  await until(() => receiver.got.length >= COUNT);
  const whole = receiver.got.every(({ view }) => view.topic === 'simple' && !view.corrupted
    && view.keys.join() === `key-${view.properties.get('n')}` && view.deliveryAttempt === 1);
  const kept = receiver.got.every(({ view }) => ids.has(view.messageId)) && ids.size === COUNT;
  await producer.shutdown();
  await receiver.close();
  return `${summary(receiver.bodies())}, ids kept ${said(kept)}, whole ${said(whole)}`;
}

async function tags() {
  const receiver = await startedReceiver('tags', { expression: 'TagA' });
  const producer = await startedProducer('tags');
  for (let i = 0; i < COUNT; i++) await producer.send(message('tags', i));
  await until(() => receiver.got.length >= COUNT / 2);
  await producer.shutdown();
  await receiver.close();
  const found = [ ...new Set(receiver.got.map(({ view }) => `'${view.tag}'`)) ];
  return `${receiver.got.length} messages, tags [${found}]`;
}

async function again() {
  const attempts = [];
  const receiver = await startedReceiver('again', {
    decide: async (view, consumer) => {
      attempts.push([ view.deliveryAttempt, Date.now() ]);
      if (attempts.length === 1) await consumer.changeInvisibleDuration(view, 11000);
      else await consumer.ack(view);
    },
  });
  const producer = await startedProducer('again');
  await producer.send(message('again', 0));
  await until(() => attempts.length >= 2, 40);
  await producer.shutdown();
  await receiver.close();
  const apart = attempts.length > 1 ? attempts[1][1] - attempts[0][1] : 0;
  return `attempts [${attempts.map(one => one[0]).join(', ')}], not early ${said(apart >= 10500)}`;
}

async function startedPush(topic, consume) {
  const got = [];
  const consumer = new PushConsumer({
    ...common,
    consumerGroup: `G-${topic}`,
    subscriptions: new Map([[ topic, '*' ]]),
    messageListener: {
      async consume(view) {
        got.push(view);
        return consume ? consume(view) : ConsumeResult.SUCCESS;
      },
    },
  });
  await consumer.startup();
  await pause(3000);
  return { consumer, got };
}

async function push() {
  const { consumer, got } = await startedPush('push');
  const producer = await startedProducer('push');
  for (let i = 0; i < COUNT; i++) await producer.send(message('push', i));
  await until(() => got.length >= COUNT);
  await consumer.shutdown();
  await producer.shutdown();
  return summary(got.map(view => `${view.body}`));
}

async function retry() {
  const { consumer, got } = await startedPush('retry', view => (
    view.deliveryAttempt < 2 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS));
  const producer = await startedProducer('retry');
  await producer.send(message('retry', 0));
  await until(() => got.length >= 2, 60);
  await consumer.shutdown();
  await producer.shutdown();
  return `attempts [${got.map(view => view.deliveryAttempt).join(', ')}]`;
}

async function fifo() {
  const { consumer, got } = await startedPush('fifo');
  const producer = await startedProducer('fifo');
  for (let i = 0; i < COUNT; i++) {
    await producer.send(message('fifo', i, { messageGroup: `group-${i % 3}` }));
  }
  await until(() => got.length >= COUNT);
  await consumer.shutdown();
  await producer.shutdown();
  const last = {};
  let inOrder = true;
  for (const view of got) {
    const number = Number(view.properties.get('n'));
    inOrder = inOrder && !(last[view.messageGroup] > number);
    last[view.messageGroup] = number;
  }
  return `${summary(got.map(view => `${view.body}`))}, in order ${said(inOrder)}`;
}

async function delay() {
  const receiver = await startedReceiver('delay');
  const producer = await startedProducer('delay');
  const due = [];
  for (let i = 0; i < 4; i++) {
    due.push(Math.floor(Date.now() / 1000) * 1000 + (2 + i) * 1000);
    await producer.send(message('delay', i, { deliveryTimestamp: new Date(due[i]) }));
  }
  await until(() => receiver.got.length >= 4);
  const early = receiver.got.filter(({ view, at }) => at < due[Number(view.properties.get('n'))]);
  await producer.shutdown();
  await receiver.close();
  return `${summary(receiver.bodies(), 4)}, early ${early.length}`;
}

async function recall() {
  const receiver = await startedReceiver('recall');
  const producer = await startedProducer('recall');
  const deliveryTimestamp = new Date(Date.now() + 10000);
  const kept = await producer.send(message('recall', 0, { deliveryTimestamp }));
  const gone = await producer.send(message('recall', 1, { deliveryTimestamp }));
  const recalled = await producer.recallMessage('recall', gone.recallHandle);
  await until(() => receiver.got.length >= 2, 16);
  await producer.shutdown();
  await receiver.close();
  const same = recalled.messageId === gone.messageId;
  const came = receiver.bodies().map(body => `'${body}'`);
  return `recalled ${said(same)}, came [${came}], handles ${said(kept.recallHandle)}`;
}

async function transaction() {
  const { TransactionResolution } = load('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
  const receiver = await startedReceiver('transaction');
  const checker = {
    async check(view) {
      return Number(view.properties.get('n')) % 2 ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT;
    },
  };
  const producer = await startedProducer('transaction', { checker });
  for (const [ number, end ] of [ 'commit', 'rollback', null, null ].entries()) {
    const half = producer.beginTransaction();
    await producer.send(message('transaction', number), half);
    if (end) await half[end]();
  }
  const came = () => [ ...new Set(receiver.bodies()) ];
  await until(() => came().includes('body-0') && came().includes('body-2'), 60);
  await pause(2000);
  await producer.shutdown();
  await receiver.close();
  // A broker that asks before it knows of the commit delivers twice.
  return `came [${came().map(body => `'${body}'`).join(', ')}]`;
}

const scenarios = { simple, tags, again, push, retry, fifo, delay, recall, transaction };

// Side by side: most of them wait for something.
Promise.all(names.map(async name => {
  let result;
  try {
    result = await scenarios[name]();
  } catch (error) {
    result = `FAILED ${error.stack.replace(/\n/g, ' ')}`;
  }
  console.log(`${name}: ${result}`);
})).then(() => process.exit(0));
