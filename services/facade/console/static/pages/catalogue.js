// The pages other than chats, in the order of the navigation: those for daily work, then those for operating the suite.

export const PAGES = {
  inbox: { name: "Inbox", isWork: true, load: () => import("./inbox.js") },
  agents: { name: "Agents", isWork: true, load: () => import("./agents.js") },
  schedules: { name: "Schedules", isWork: true, load: () => import("./schedules.js") },
  live: { name: "Live", scope: "operate", load: () => import("./live.js") },
  spend: { name: "Spend", load: () => import("./spend.js") },
  own_agents: { name: "Own agents", scope: "publish", load: () => import("./own_agents.js") },
  film: { name: "Recordings", load: () => import("./film.js") },
  webhooks: { name: "Webhooks", scope: "admin", load: () => import("./webhooks.js") },
  keys: { name: "Keys", scope: "admin", load: () => import("./keys.js") },
  data: { name: "Data", scope: "admin", load: () => import("./data.js") },
  audit: { name: "Audit", scope: "admin", load: () => import("./audit.js") },
  providers: { name: "Providers", scope: "operate", load: () => import("./providers.js") },
};
