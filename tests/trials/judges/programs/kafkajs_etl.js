// Consume, process, produce with kafkajs, exactly once, until SIGTERM: one member, a producer for each partition, since
// kafkajs sends no generation with a transaction's offsets (KIP-447).
//
// node kafkajs_etl.js BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, input, output, groupId, transactionalId] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR, retry: { retries: 20, maxRetryTime: 2000 } })
let ended = false
process.on('SIGTERM', () => { ended = true })

async function untilItFails() {
  const consumer = kafka.consumer({ groupId, readUncommitted: false, sessionTimeout: 10000 })
  const producers = new Map()
  let failed
  const producer = async partition => {
    if (!producers.has(partition)) {
      const made = kafka.producer({ transactionalId: `${transactionalId}-${partition}`, idempotent: true, maxInFlightRequests: 1 })
      await made.connect()
      producers.set(partition, made)
    }
    return producers.get(partition)
  }
  const eachBatch = async ({ batch, heartbeat, isRunning, isStale }) => {
    for (let at = 0; at < batch.messages.length && !failed; at += 100) {
      if (!isRunning() || isStale()) return
      const messages = batch.messages.slice(at, at + 100)
      const offset = (BigInt(messages.at(-1).offset) + 1n).toString()
      let transaction
      try {
        transaction = await (await producer(batch.partition)).transaction()
        await transaction.send({ topic: output, messages: messages.map(({ key, value }) => ({ key, value })) })
        await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: input, partitions: [{ partition: batch.partition, offset }] }] })
        await transaction.commit()
      } catch (error) {
        failed = error
        if (transaction && transaction.isActive()) await transaction.abort().catch(() => {})
        throw error
      }
      await heartbeat()
    }
  }
  consumer.on(consumer.events.CRASH, ({ payload }) => { failed = failed || payload.error })
  try {
    await consumer.connect()
    await consumer.subscribe({ topics: [input], fromBeginning: true })
    await consumer.run({ autoCommit: false, partitionsConsumedConcurrently: 4, eachBatch })
    while (!ended && !failed) await new Promise(resolve => setTimeout(resolve, 100))
    if (failed) console.log(`anew after ${failed}`)
  } finally {
    for (const it of [consumer, ...producers.values()]) await it.disconnect().catch(() => {})
  }
}

(async () => {
  while (!ended) await untilItFails().catch(error => console.log(`anew after ${error}`))
  process.exit(0)
})()
