// kafkajs, asked as ../secured/worker.py tells: one JSON object in a line, each way.
'use strict'

const fs = require('node:fs')
const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const TIMEOUT_MS = 30_000

function client(settings) {
  const options = {
    brokers: [settings.bootstrap],
    logLevel: logLevel.NOTHING,
    connectionTimeout: 5_000,
    retry: { retries: 2, initialRetryTime: 100 },
  }
  if (settings.protocol.endsWith('SSL')) {
    options.ssl = { ca: fs.readFileSync(settings.ca) }
    if (settings.certificate) {
      options.ssl.cert = fs.readFileSync(settings.certificate)
      options.ssl.key = fs.readFileSync(settings.key)
    }
  }
  if (settings.mechanism) {
    options.sasl = { mechanism: settings.mechanism.toLowerCase() }
    if (settings.token) {
      options.sasl.oauthBearerProvider = async () => ({ value: settings.token })
    } else {
      options.sasl.username = settings.username
      options.sasl.password = settings.password
    }
  }
  return new Kafka(options)
}

const actions = {
  async hello() {
    return { version: require('kafkajs/package.json').version }
  },

  async produce({ settings, topic, values }) {
    const producer = client(settings).producer({ allowAutoTopicCreation: false })
    try {
      await producer.connect()
      const offsets = []
      for (const value of values) {
        const [{ baseOffset }] = await producer.send({ topic, messages: [{ value }] })
        offsets.push(Number(baseOffset))
      }
      return { offsets }
    } finally {
      await producer.disconnect()
    }
  },

  async consume({ settings, topic, group, count }) {
    const consumer = client(settings).consumer({ groupId: group, maxWaitTimeInMs: 100 })
    let timer
    try {
      await consumer.connect()
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      const values = []
      await new Promise((resolve, reject) => {
        timer = setTimeout(() => reject(new Error(`${values.length} records`)), TIMEOUT_MS)
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
        consumer
          .run({
            autoCommit: false,
            eachMessage: async ({ partition, message }) => {
              values.push(message.value.toString())
              const offset = String(BigInt(message.offset) + 1n)
              await consumer.commitOffsets([{ topic, partition, offset }])
              if (values.length === count) resolve()
            },
          })
          .catch(reject)
      })
      return { values }
    } finally {
      clearTimeout(timer)
      await consumer.disconnect()
    }
  },

  async describe({ settings, topic, group }) {
    const admin = client(settings).admin()
    try {
      await admin.connect()
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
      const { groups } = await admin.describeGroups([group])
      return { partitions: topics[0].partitions.length, group: groups[0].groupId }
    } finally {
      await admin.disconnect()
    }
  },
}

// The innermost error says most: those around it tell that it was tried again.
function innermost(error) {
  while (error.cause instanceof Error) error = error.cause
  return error
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: name, ...request } = JSON.parse(line)
    let answer
    try {
      answer = await actions[name](request)
    } catch (thrown) {
      const error = innermost(thrown)
      answer = { error: error.type || error.name, told: error.message }
      if (error.topic) answer.told += ` ${error.topic}`
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`)
  }
}

main()
