// Creates the parts of the page and connects them.

import { AgentPicker } from "./chat/agent_picker.js";
import * as api from "./server/api.js";
import { Attachments } from "./chat/attachments.js";
import { ChatList } from "./chat/chat_list.js";
import { ChatSearch } from "./chat/chat_search.js";
import { openContextPanel } from "./chat/context_panel.js";
import { Composer } from "./chat/composer.js";
import { Conversation } from "./chat/conversation.js";
import { createIcon } from "./elements/icon.js";
import { openFacts } from "./chat/facts_dialog.js";
import { setUpSignIn, setUpSignOut } from "./server/credential.js";
import * as address from "./navigation/address.js";
import { PAGES } from "./pages/catalogue.js";
import { Router } from "./navigation/router.js";
import { saveFilesOnClick } from "./chat/file_links.js";
import { keepAtEnd } from "./chat/scrolling.js";
import { setWaitingCount } from "./navigation/title.js";
import { WaitingGates } from "./people/waiting_gates.js";

const byId = (id) => document.getElementById(id);

function showProblem(error) {
  if (error.status === 401) return; // the form by which one signs in has opened
  byId("problem").textContent = error.message;
  byId("problem").hidden = false;
}

const chatList = new ChatList(byId("chats"), { onDeleted: handleDeletion, onProblem: showProblem });
new ChatSearch(byId("search"), byId("hits"), {
  onChange: (isSearching) => chatList.setShown(!isSearching),
  onProblem: showProblem,
});
const agentPicker = new AgentPicker({
  select: byId("agent"),
  about: byId("about"),
  welcome: byId("welcome"),
  simulated: byId("simulated"),
  ask: (question) => sendMessage(question).catch(showProblem),
});
const conversation = new Conversation(byId("runs"), {
  onChange: updatePage,
  onProblem: showProblem,
  onLost: (isLost) => (byId("lost").hidden = !isLost),
  onAgent: (agentKey) => agentPicker.chooseAgent(agentKey),
  onGate: () => waitingGates.refresh(),
  onFork: () => {
    leaveUploads();
    chatList.loadFirstPage();
  },
  onReturn: (question) => composer.proposeMessage(question ?? ""),
});
let chatOfUploads = null; // a file may be uploaded before the chat's first question

const attachments = new Attachments(byId("file"), byId("files"), () => {
  chatOfUploads = conversation.chatId ?? chatOfUploads ?? api.createId();
  return chatOfUploads;
});
const composer = new Composer(byId("composer"), { send: sendMessage, stop: stopRun });

const waitingGates = new WaitingGates(({ count, chatIds }) => {
  setWaitingCount(count);
  router.setCount("inbox", count);
  chatList.markWaiting(chatIds);
});

async function sendMessage(message) {
  if (conversation.live && !conversation.live.isOthers) {
    await conversation.steerRun(message);
    return;
  }
  const { chatId } = conversation;
  const references = await attachments.takeReferences();
  if (conversation.chatId !== chatId) throw new Error("Another chat was opened while the files were uploaded.");
  const query = { message, agentKey: agentPicker.key, ...(references.length && { references }) };
  if (references.length) query.chatId = chatOfUploads;
  conversation.askQuestion(query);
}

async function stopRun() {
  await conversation.cancelRun().catch(showProblem);
}

/** Update the page's parts after a run has begun or ended. */
function updatePage() {
  const { live, chatId } = conversation;
  const mayAsk = conversation.access !== "read";
  composer.updateState({ isLive: Boolean(live), canSteer: Boolean(live?.runId), mayAsk });
  byId("welcome").hidden = Boolean(chatId);
  byId("context").hidden = !chatId;
  chatList.markCurrent(chatId);
  if (live?.runId || !live) chatList.loadFirstPage();
}

function handleDeletion(chatId) {
  if (chatId !== conversation.chatId) return chatList.loadFirstPage();
  address.updateAddress({});
  return openAddressedChat();
}

/** Open the address's chat unless it is open already. */
async function openChats(isReturn) {
  if (isReturn) composer.focus();
  if (address.readAddress().chatId !== conversation.chatId) await openAddressedChat();
}

/** A file belongs to the chat that it was uploaded to. */
function leaveUploads() {
  chatOfUploads = null;
  attachments.clear();
}

async function openAddressedChat() {
  byId("problem").hidden = true;
  leaveUploads();
  try {
    await conversation.openChat(address.readAddress());
  } catch (error) {
    showProblem(error);
  }
}

byId("context").addEventListener("click", () => {
  const { chatId, live } = conversation;
  openContextPanel({ chatId, runId: live?.runId, agentKey: live ? undefined : agentPicker.key }).catch(showProblem);
});
byId("new-chat").addEventListener("click", async () => {
  address.updateAddress({}, { isNew: true });
  await router.open();
  composer.focus();
});
byId("side").addEventListener("click", (event) => {
  if (event.target.closest("a, #new-chat, #facts")) byId("side").hidePopover(); // a drawer on a phone
});
byId("facts").addEventListener("click", openFacts);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # is an address of ours
  (byId("page").hidden ? byId("message") : byId("page").querySelector("h2")).focus();
});
for (const element of document.querySelectorAll("[data-icon]")) element.prepend(createIcon(element.dataset.icon));
setUpSignIn(byId("sign-in"));
saveFilesOnClick(document, showProblem);
keepAtEnd(byId("scroll"), byId("runs"), byId("latest"));
agentPicker.loadAgents().catch(showProblem);
const router = new Router({
  catalogue: PAGES,
  navigation: byId("pages"),
  chats: [byId("chats"), byId("conversation")],
  place: byId("page"),
  openChats,
  context: { waitingGates },
});
await router.open();
// Once what was asked for is shown:
api.getIdentity().then(({ scopes }) => {
  router.setScopes(scopes ?? []);
  return setUpSignOut(byId("sign-out"));
}, showProblem);
waitingGates.start();
