// grpc-js with its default options: reads streams of one connection to their ends, and prints one line for each.

import { readFileSync } from "node:fs";

import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [address, descriptors, method, request, streams] = process.argv.slice(2);
const types = loader.loadFileDescriptorSetFromBuffer(readFileSync(descriptors), { longs: Number, oneofs: true });
const [service, name] = method.split("/").slice(1);
const Client = service.split(".").reduce((found, part) => found[part], grpc.loadPackageDefinition(types));
const client = new Client(address, grpc.credentials.createInsecure());

function readStream() {
  const begun = performance.now();
  let messages = 0;
  return new Promise((resolve) => {
    const call = client[name](JSON.parse(request));
    call.on("data", () => messages++);
    call.on("error", () => {}); // its status says so
    call.on("status", ({ code, details }) => {
      console.log(JSON.stringify({ messages, code, details, seconds: (performance.now() - begun) / 1000 }));
      resolve();
    });
  });
}

await Promise.all(Array.from({ length: Number(streams) }, readStream));
client.close();
