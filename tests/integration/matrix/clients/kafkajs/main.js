// What a client does in the matrix, with KafkaJS: see tests/integration/matrix/programs.py.
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const [servers, user, secret, cafile, name, count, denied] = process.argv.slice(2)
const records = Number(count)
const PATIENCE_MS = 60000

const say = (step, result) => process.stdout.write(`${step}: ${typeof result === 'string' ? result : JSON.stringify(result)}\n`)

const connectTo = (password, retries = 8) => new Kafka({
  clientId: 'kafkajs',
  brokers: servers.split(','),
  logLevel: logLevel.NOTHING,
  ssl: { ca: [fs.readFileSync(cafile)] },
  sasl: { mechanism: 'scram-sha-512', username: user, password },
  retry: { retries }
})
const kafka = connectTo(secret)

async function errorOf (act) {
  try {
    await act()
    return 'none'
  } catch (error) {
    const inner = error.cause || error
    const first = (inner.errors || error.errors || [])[0] || inner
    return first.type || first.message
  }
}

async function consume (topic, groupId, wanted, readUncommitted = false) {
  const consumer = kafka.consumer({ groupId, readUncommitted, retry: { retries: 2 } })
  let came = 0
  let sum = 0
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${came} records of ${wanted}`)), PATIENCE_MS)
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message, partition }) => {
        sum += Number(message.value)
        came++
        await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
        if (came === wanted) {
          clearTimeout(timer)
          resolve()
        }
      }
    }).catch(reject)
  }).finally(() => consumer.disconnect())
  return `${came} records, sum ${sum}`
}

async function produce () {
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  const messages = [...Array(records).keys()].map(n => ({ partition: n % 3, value: String(n) }))
  const told = await producer.send({ topic: name, acks: -1, messages })
  await producer.disconnect()
  say('produced', `${messages.length} to ${told.length} partitions`)
}

async function transactions (topic) {
  const producer = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const first of [0, 100]) {
    const transaction = await producer.transaction()
    const messages = [...Array(10).keys()].map(n => ({ partition: 0, value: String(first + n) }))
    await transaction.send({ topic, acks: -1, messages })
    await (first ? transaction.abort() : transaction.commit())
  }
  await producer.disconnect()
  say('transactions', await consume(topic, `${name}-rc`, 10))
}

async function ends (admin, topic) {
  const found = await admin.fetchTopicOffsets(topic)
  return found.map(one => [one.partition, one.high]).sort()
}

async function main () {
  const admin = kafka.admin()
  await admin.connect()
  const cluster = await admin.describeCluster()
  say('cluster', [cluster.clusterId, cluster.brokers.map(one => one.nodeId).sort()])
  const topics = [
    { topic: name, numPartitions: 3, replicationFactor: 3 },
    { topic: `${name}-t`, numPartitions: 1, replicationFactor: 3 }
  ]
  await admin.createTopics({ topics, waitForLeaders: true })
  say('created', `again: made ${await admin.createTopics({ topics: topics.slice(0, 1) })}`)
  const described = (await admin.fetchTopicMetadata({ topics: [name] })).topics[0].partitions
  say('described', described.map(one => [one.partitionId, one.replicas.sort()]).sort())
  await produce()
  say('ends', await ends(admin, name))
  say('classic', await consume(name, `${name}-classic`, records))
  const committed = await admin.fetchOffsets({ groupId: `${name}-classic`, topics: [name] })
  say('committed', committed[0].partitions.map(one => [one.partition, one.offset]).sort())
  await transactions(`${name}-t`)
  say('transactions\' end', await ends(admin, `${name}-t`))
  const producer = kafka.producer({ retry: { retries: 1 } })
  await producer.connect()
  say('denied', await errorOf(() => producer.send({ topic: denied, messages: [{ value: '1' }] })))
  await producer.disconnect()
  say('denied group', await errorOf(() => consume(name, 'of-others', 1)))
  await admin.deleteTopics({ topics: [name, `${name}-t`] })
  say('deleted', `again: ${await errorOf(() => admin.deleteTopics({ topics: [name] }))}`)
  await admin.disconnect()
  say('wrong password', await errorOf(() => connectTo('wrong', 0).admin().connect()))
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
