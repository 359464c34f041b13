// MQTT.js with a name that a test gives it: `node client.js '{"port": …}'`. Publishes each line of
// stdin, and prints "acked LINE"; or reads, and prints "came PAYLOAD".
"use strict";
const readline = require("readline");
const mqtt = require("mqtt");

const o = JSON.parse(process.argv[2]);
const client = mqtt.connect({
  host: "127.0.0.1",
  port: o.port,
  username: o.user,
  password: process.env.PASSWORD,
  clientId: o.id,
  protocolVersion: o.version,
  clean: false,
  properties: o.version === 5 ? { sessionExpiryInterval: 3600 } : undefined,
  reconnectPeriod: 500,
  reconnectOnConnackError: true,
  resubscribe: false,
});
const say = (text) => process.stdout.write(text + "\n");
client.on("error", (error) => process.stderr.write(`${error.message}\n`));
client.on("connect", () => say("connected"));
if (o.read) {
  client.once("connect", () =>
    client.subscribe(o.topic, { qos: o.qos }, (error) => say(error ? `error ${error}` : "subscribed")),
  );
  client.on("message", (_topic, payload) => say(`came ${payload}`));
} else {
  readline.createInterface({ input: process.stdin }).on("line", (line) => {
    // What has no connection would wait here, QoS 0 too.
    client.publish(o.topic, line, { qos: o.qos }, (error) => say(`${error ? "failed" : "acked"} ${line}`));
  });
}
