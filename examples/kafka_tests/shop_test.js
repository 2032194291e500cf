// A test of kafkajs with Node's own test runner: it starts a cluster in memory, which ends with this process.
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { test } = require("node:test");
const assert = require("node:assert");
const { Kafka } = require("kafkajs");

test("an order is paid once", async () => {
  const cluster = spawn("eosdb", ["serve", "--memory", "--print-address"]);
  const [line] = await once(cluster.stdout, "data");
  const kafka = new Kafka({ brokers: [line.toString().trim()] });
  const producer = kafka.producer({ transactionalId: "shop", idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const transaction = await producer.transaction();
  await transaction.send({ topic: "payments", messages: [{ key: "order 42", value: "paid" }] });
  await transaction.commit();
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "test" });
  await consumer.subscribe({ topic: "payments", fromBeginning: true });
  const read = new Promise((resolve) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(`${message.key}: ${message.value}`) });
  });
  assert.equal(await read, "order 42: paid");
  await consumer.disconnect();
  cluster.kill();
});
