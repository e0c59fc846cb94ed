// amqplib for node: argv is the URL of a broker. Prints what it saw as JSON; ends with an error where it waits in vain.
'use strict'
const amqp = require('amqplib')
const guard = setTimeout(() => { console.error('waited in vain'); process.exit(1) }, 20000)

async function main (url) {
  const seen = []
  const connection = await amqp.connect(url)
  const channel = await connection.createConfirmChannel()
  await channel.assertQueue('dead', { durable: true })
  await channel.assertQueue('work', { durable: true, deadLetterExchange: '', deadLetterRoutingKey: 'dead' })
  const returned = new Promise(resolve => channel.once('return', resolve))
  for (const body of ['acked', 'returned', 'rejected']) channel.sendToQueue('work', Buffer.from(body), { persistent: true, mandatory: true })
  channel.sendToQueue('nowhere', Buffer.from('lost'), { mandatory: true })
  await channel.waitForConfirms()
  const lost = await returned
  await channel.prefetch(1)
  await new Promise(resolve => channel.consume('work', message => {
    const body = message.content.toString()
    seen.push([body, message.fields.redelivered])
    if (body === 'acked') channel.ack(message)
    else channel.nack(message, false, body === 'returned' && !message.fields.redelivered)
    if (body === 'rejected') resolve()
  }))
  await channel.checkQueue('work')
  const dead = [await channel.get('dead', { noAck: true }), await channel.get('dead', { noAck: true })]
  const cut = new Promise(resolve => connection.on('close', resolve))
  connection.on('error', () => {})
  channel.on('error', () => {})
  console.log(JSON.stringify({
    returned: [lost.fields.replyText, lost.fields.routingKey],
    seen,
    dead: dead.map(message => [message.content.toString(), message.properties.headers['x-death'][0].reason])
  }))
  await cut
  const again = await amqp.connect(url)
  const other = await again.createChannel()
  console.log(JSON.stringify({ queue: (await other.checkQueue('work')).messageCount }))
  await again.close()
  clearTimeout(guard)
}

main(process.argv[2]).catch(error => { console.error(error); process.exit(1) })
