// The page: its parts, and who tells whom.

import { Agents } from "./page/agent_picker.js";
import * as api from "./server/api.js";
import { Attachments } from "./page/attachments.js";
import { Chats } from "./page/chat_list.js";
import { Composer } from "./page/composer.js";
import { Conversation } from "./page/conversation.js";
import { askIn } from "./server/credential.js";
import * as place from "./page/address.js";
import { saveFiles } from "./page/file_links.js";
import { keepAtEnd } from "./page/scrolling.js";

const byId = (id) => document.getElementById(id);

function problem(error) {
  byId("problem").textContent = error.message;
  byId("problem").hidden = false;
}

const chats = new Chats(byId("chats"), { onDeleted, problem });
const agents = new Agents(byId("agent"), byId("about"));
const conversation = new Conversation(byId("runs"), {
  changed,
  problem,
  lost: (isLost) => (byId("lost").hidden = !isLost),
  ran: (agentKey) => agents.choose(agentKey),
  forked: () => chats.refresh(),
});
let chatOfUploads = null; // a file may come before the chat's first question

const attachments = new Attachments(byId("file"), byId("files"), () => {
  chatOfUploads = conversation.chatId ?? chatOfUploads ?? api.newId();
  return chatOfUploads;
});
const composer = new Composer(byId("composer"), { send, stop });

async function send(message) {
  if (conversation.live) {
    await conversation.steer(message);
    return;
  }
  const references = await attachments.take();
  const query = { message, agentKey: agents.key, ...(references.length && { references }) };
  if (references.length) query.chatId = chatOfUploads;
  conversation.ask(query);
}

async function stop() {
  await conversation.cancel().catch(problem);
}

/** A run has begun or ended: what can be done now is another thing. */
function changed() {
  const { live, chatId } = conversation;
  composer.show({ isLive: Boolean(live), canSteer: Boolean(live?.runId) });
  byId("welcome").hidden = Boolean(chatId);
  chats.mark(chatId);
  if (live?.runId || !live) chats.refresh();
}

function onDeleted(chatId) {
  if (chatId !== conversation.chatId) return chats.refresh();
  place.tell({});
  return open();
}

async function open() {
  byId("problem").hidden = true;
  chatOfUploads = null;
  try {
    await conversation.open(place.current());
  } catch (error) {
    problem(error);
  }
}

byId("new-chat").addEventListener("click", () => {
  place.tell({}, { isNew: true });
  open();
  composer.focus();
});
place.onChange(() => {
  if (place.current().chatId !== conversation.chatId) open();
});
askIn(byId("sign-in"));
saveFiles(document, problem);
keepAtEnd(byId("scroll"), byId("runs"), byId("latest"));
agents.load().catch(problem);
await open();
