// The pages beside the chats, in the order of the navigation.

export const PAGES = {
  inbox: { name: "Inbox", load: () => import("./inbox.js") },
  live: { name: "Live", scope: "operate", load: () => import("./live.js") },
  spend: { name: "Spend", load: () => import("./spend.js") },
  agents: { name: "Agents", load: () => import("./agents.js") },
  own_agents: { name: "Own agents", scope: "publish", load: () => import("./own_agents.js") },
  film: { name: "Recordings", load: () => import("./film.js") },
  schedules: { name: "Schedules", load: () => import("./schedules.js") },
  webhooks: { name: "Webhooks", scope: "admin", load: () => import("./webhooks.js") },
  keys: { name: "Keys", scope: "admin", load: () => import("./keys.js") },
  data: { name: "Data", scope: "admin", load: () => import("./data.js") },
  audit: { name: "Audit", scope: "admin", load: () => import("./audit.js") },
  providers: { name: "Providers", scope: "operate", load: () => import("./providers.js") },
};
