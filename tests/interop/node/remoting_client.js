// The Node client over TCP (npm `rocketmq`): sends, then consumes; prints what it saw.
// Run in the folder of its node_modules: remoting_client.js NAME_SERVER TOPIC
'use strict';

const load = name => require(require.resolve(name, { paths: [ process.cwd() ] }));
const co = load('co');
const { Consumer, Message, Producer } = load('rocketmq');

const [ namesrvAddr, topic ] = process.argv.slice(2);
const COUNT = 20;
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
// Asked for although it is only used to look up name servers.
const common = { namesrvAddr, httpclient: {} };

function* send() {
  const producer = new Producer({ ...common, producerGroup: 'NodeProducer' });
  yield producer.ready();
  const statuses = new Set();
  for (let i = 0; i < COUNT; i++) {
    const message = new Message(topic, i % 2 ? 'TagA' : 'TagB', `body-${i}`);
    const result = yield producer.send(message);
    statuses.add(result.sendStatus);
  }
  yield producer.close();
  return [ ...statuses ].join();
}

function* push(group, expression, wanted) {
  const consumer = new Consumer({
    ...common,
    consumerGroup: group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  consumer.on('error', error => console.error(error));
  const seen = [];
  consumer.subscribe(topic, expression, function* (message) {
    seen.push(`${message.body}`);
  });
  yield consumer.ready();
  for (let waited = 0; seen.length < wanted && waited < 40000; waited += 100) yield pause(100);
  yield pause(300);
  yield consumer.close();
  return `${seen.length} messages, ${new Set(seen).size} of them different`;
}

co(function* () {
  console.log(`send: ${yield send()}`);
  console.log(`push: ${yield push('NodePush', '*', COUNT)}`);
  console.log(`push-tag: ${yield push('NodePushTag', 'TagA', COUNT / 2)}`);
}).then(
  () => process.exit(0),
  error => {
    console.log(`FAILED ${error.stack}`);
    process.exit(1);
  }
);
