// What the console knows of its session. Until the server has said so, nothing may be written.
export const state = { read_only: true, bootstrap: "", cluster_id: null, login: false, user: null, guard: "1", schemas: false };
