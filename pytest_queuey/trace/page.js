// Shows a job's story beside the picture: while it is pointed at or focused, and for longer where it is clicked.
(() => {
  const chart = document.querySelector(".chart"), panel = document.getElementById("panel");
  const messages = [...document.querySelectorAll(".m")];
  let pinned = null;
  const show = (job, withStory) => {
    const story = job === null ? null : document.getElementById("j" + job);
    for (const message of messages) message.classList.toggle("on", message.dataset.j === job);
    chart.classList.toggle("dim", job !== null);
    panel.classList.toggle("up", story !== null && withStory);
    if (story === null || !withStory) return;
    const copy = story.cloneNode(true);
    copy.removeAttribute("id");
    panel.replaceChildren(copy);
  };
  const leave = () => show(pinned, true);
  for (const message of messages) {
    const job = message.dataset.j;
    message.addEventListener("mouseenter", () => show(job, true));
    message.addEventListener("mouseleave", leave);
    message.addEventListener("focus", () => show(job, true));
    message.addEventListener("blur", leave);
    message.addEventListener("click", (event) => {
      event.preventDefault();
      pinned = pinned === job ? null : job;
      show(pinned, true);
    });
  }
  for (const story of document.querySelectorAll("main article")) {
    story.addEventListener("mouseenter", () => show(story.id.slice(1), false));
    story.addEventListener("mouseleave", leave);
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    pinned = null;
    show(null, false);
  });
  const asked = /^#j(\d+)$/.exec(location.hash);
  if (asked !== null && document.getElementById("j" + asked[1]) !== null) show((pinned = asked[1]), true);
})();
