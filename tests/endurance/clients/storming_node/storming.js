// The same as storming.py, with KafkaJS; without the name of a library.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, user, secret, topic, partitions, slots, records] = process.argv.slice(2)
let ended = false
process.stdin.on('end', () => { ended = true })
process.stdin.resume()

const say = line => process.stdout.write(line + '\n')

async function run (name) {
  const kafka = new Kafka({
    brokers: bootstrap.split(','),
    logLevel: logLevel.NOTHING,
    sasl: { mechanism: 'plain', username: user, password: secret },
    retry: { retries: Number.MAX_SAFE_INTEGER, maxRetryTime: 2000 }
  })
  // Idempotent, it may have several requests in flight; of a record each.
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 5 })
  let told = 0
  let delivered = 0
  await producer.connect()
  await Promise.all([...Array(Number(records)).keys()].map(async n => {
    const value = `${name}-${n}`
    try {
      await producer.send({ topic, acks: -1, messages: [{ partition: n % partitions, value }] })
      delivered++
    } catch (error) {
      say(`failed ${value} ${error.type || error.name}`)
    }
    told++
  }))
  if (delivered) say('began')
  say(`sent ${name} ${records} ${told}`)
  await producer.disconnect()
}

async function loop (slot) {
  for (let made = 0; !ended; made++) {
    try {
      await run(`${slot}.${made}`)
    } catch (error) {
      say(`restart ${slot}.${made} ${error.name}`)
      await new Promise(resolve => setTimeout(resolve, 1000))
    }
  }
}

Promise.all([...Array(Number(slots)).keys()].map(loop)).then(() => process.exit(0))
