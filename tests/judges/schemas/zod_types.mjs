// Prints the JSON Schemas that zod 4 and zod 3 make of types that tools have: one JSON object, by name.

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(path.join(process.argv[2], "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { z } = await load("zod");
const { z: old } = await load("zod-3");
const { zodToJsonSchema } = await load("zod-to-json-schema");

const common = (z) => ({
  string: z.string(),
  "string of lengths": z.string().min(1).max(80),
  "regular expression": z.string().regex(/^[a-z][a-z0-9_-]*$/i),
  "look-ahead": z.string().regex(/^(?=.*\d)(?=.*[a-z]).{8,}$/),
  "look-behind": z.string().regex(/(?<!\.)\.json$/),
  "back-reference": z.string().regex(/^(["'])[^"']*\1$/),
  "unicode property": z.string().regex(/^\p{Lu}\p{L}*$/u),
  "starts with": z.string().startsWith("https://"),
  includes: z.string().includes("@"),
  "ends with": z.string().endsWith(".csv"),
  trimmed: z.string().trim(),
  email: z.string().email(),
  url: z.string().url(),
  uuid: z.string().uuid(),
  cuid: z.string().cuid(),
  cuid2: z.string().cuid2(),
  ulid: z.string().ulid(),
  nanoid: z.string().nanoid(),
  emoji: z.string().emoji(),
  datetime: z.string().datetime({ offset: true }),
  date: z.string().date(),
  time: z.string().time(),
  duration: z.string().duration(),
  base64: z.string().base64(),
  number: z.number().min(0).max(1),
  integer: z.number().int().positive(),
  multiple: z.number().multipleOf(0.01),
  boolean: z.boolean(),
  null: z.null(),
  literal: z.literal("once"),
  enum: z.enum(["red", "green"]),
  array: z.array(z.string()).min(1).max(5),
  tuple: z.tuple([z.string(), z.number()]),
  "tuple with a rest": z.tuple([z.string()]).rest(z.number()),
  object: z.object({ a: z.string(), b: z.number().optional() }),
  strict: z.object({ a: z.string() }).strict(),
  passthrough: z.object({ a: z.string() }).passthrough(),
  nullable: z.string().nullable(),
  optional: z.string().optional(),
  "with a default": z.string().default("x"),
  described: z.string().describe("a name"),
  union: z.union([z.string(), z.number()]),
  discriminated: z.discriminatedUnion("kind", [
    z.object({ kind: z.literal("a"), x: z.string() }),
    z.object({ kind: z.literal("b"), y: z.number() }),
  ]),
  intersection: z.intersection(z.object({ a: z.string() }), z.object({ b: z.string() })),
  any: z.any(),
  unknown: z.unknown(),
});

const newer = {
  ...common(z),
  "z.email": z.email(),
  "z.email by HTML5": z.email({ pattern: z.regexes.html5Email }),
  "z.email by RFC 5322": z.email({ pattern: z.regexes.rfc5322Email }),
  "z.url": z.url({ protocol: /^https?$/, hostname: z.regexes.domain }),
  "z.uuidv7": z.uuidv7(),
  "z.ipv4": z.ipv4(),
  "z.ipv6": z.ipv6(),
  "z.cidrv4": z.cidrv4(),
  "z.cidrv6": z.cidrv6(),
  "z.iso.datetime": z.iso.datetime(),
  "z.iso.date": z.iso.date(),
  "z.iso.time": z.iso.time(),
  "z.iso.duration": z.iso.duration(),
  "z.jwt": z.jwt(),
  "z.e164": z.e164(),
  "z.base64url": z.base64url(),
  "z.hostname": z.hostname(),
  "z.int32": z.int32(),
  "z.record": z.record(z.string(), z.number()),
  "z.record of an enum": z.record(z.enum(["a", "b"]), z.number()),
  "z.record of patterns": z.record(z.string().regex(/^(?!x-)/), z.number()),
  "z.templateLiteral": z.templateLiteral(["v", z.number()]),
  "z.json": z.json(),
  recursive: z.object({
    name: z.string(),
    get children() {
      return z.array(newer_recursive());
    },
  }),
};

function newer_recursive() {
  return newer.recursive;
}

const older = { ...common(old), record: old.record(old.string(), old.number()), set: old.set(old.string()) };

const schemas = {};
for (const [name, type] of Object.entries(newer)) {
  schemas[`zod 4: ${name}`] = z.toJSONSchema(type);
  schemas[`zod 4, draft-07: ${name}`] = z.toJSONSchema(type, { target: "draft-7" });
}
for (const [name, type] of Object.entries(older)) schemas[`zod 3: ${name}`] = zodToJsonSchema(type);
process.stdout.write(JSON.stringify(schemas));
