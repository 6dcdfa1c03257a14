// Lite topics by RocketMQ's gRPC client in Node (npm `rocketmq-client-nodejs`): what each scenario
// saw. Run in the folder of its node_modules: lite_client.js ENDPOINTS SCENARIO...
'use strict';

const load = name => require(require.resolve(name, { paths: [ process.cwd() ] }));
const { ConsumeResult, LitePushConsumerImpl, Producer } = load('rocketmq-client-nodejs');

const [ endpoints, ...names ] = process.argv.slice(2);
const PARENT = 'chats';
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
const quiet = { info() {}, warn() {}, error() {}, debug() {} };
const common = { endpoints, namespace: '', requestTimeout: 20000, logger: quiet };
const producer = new Producer({ ...common, topic: PARENT });

async function send(liteTopic, ...bodies) {
  for (const body of bodies) await producer.send({ topic: PARENT, liteTopic, body: Buffer.from(body) });
}

async function until(condition, seconds = 20) {
  const deadline = Date.now() + seconds * 1000;
  while (!condition() && Date.now() < deadline) await pause(50);
  await pause(500);
}

async function started(consumerGroup, consume = () => ConsumeResult.SUCCESS) {
  const got = [];
  const consumer = new LitePushConsumerImpl({
    ...common,
    consumerGroup,
    bindTopic: PARENT,
    messageListener: {
      async consume(view) {
        got.push(view);
        return consume(view);
      },
    },
  });
  await consumer.startup();
  return { consumer, got };
}

function shown(got) {
  const by = {};
  for (const view of [ ...got ].sort((one, other) => `${one.body}`.localeCompare(`${other.body}`))) {
    (by[view.liteTopic] = by[view.liteTopic] || []).push(`${view.body}`);
  }
  return JSON.stringify(Object.fromEntries(Object.entries(by).sort()));
}

const scenarios = {
  async lite() {
    await send('lite-a', '0', '1');
    const { consumer, got } = await started('G-lite');
    await consumer.subscribeLite('lite-a');
    await consumer.subscribeLite('lite-b');
    await send('lite-a', '2');
    await send('lite-b', '0', '1');
    await send('lite-c', '0');
    await until(() => got.length >= 5);
    await consumer.shutdown();
    return shown(got);
  },
  async again() {
    const attempts = [];
    const consume = view => {
      attempts.push(view.deliveryAttempt);
      return attempts.length > 2 ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
    };
    const { consumer, got } = await started('G-again', consume);
    await consumer.subscribeLite('again');
    await send('again', 'bad');
    await until(() => got.length >= 3, 40);
    await consumer.shutdown();
    return `attempts ${JSON.stringify(attempts)}`;
  },
};

async function main() {
  await producer.startup();
  await Promise.all(names.map(async name => {
    let said;
    try {
      said = await scenarios[name]();
    } catch (error) {
      said = `FAILED ${`${error.stack}`.replace(/\n/g, ' ')}`;
    }
    console.log(`${name}: ${said}`);
  }));
  process.exit(0);
}

main();
