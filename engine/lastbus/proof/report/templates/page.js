"use strict";
(() => {
  const query = document.getElementById("q");
  const hits = document.getElementById("hits");
  const none = document.getElementById("none");
  const form = query.form;
  const chapters = [...document.querySelectorAll(".chapter")];
  const cards = [...document.querySelectorAll(".guarantee")];
  // Words are found where they begin: "hang" is not in "changed", but "core-27" and "27" are in CORE-27.
  const plain = (text) => ` ${text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, " ").trim()}`;
  const told = (one) => {
    const parts = [];
    const walker = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) parts.push(walker.currentNode.data);
    return parts.join(" ");
  };
  const texts = new Map(cards.map((card) => [card, plain(told(card))]));
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));

  const show = () => {
    const words = query.value.split(/\s+/).map(plain).filter((word) => word !== " ");
    const status = new FormData(form).get("status");
    let count = 0;
    for (const card of cards) {
      const text = texts.get(card);
      const fits = (status === "all" || card.dataset.status === status) && words.every((word) => text.includes(word));
      card.hidden = !fits;
      count += fits ? 1 : 0;
    }
    const searching = words.length > 0 || status !== "all";
    for (const chapter of chapters) {
      const inside = chapter.querySelectorAll(".guarantee:not([hidden])").length;
      chapter.hidden = searching && inside === 0;
      links.get(chapter.id)?.parentElement.toggleAttribute("hidden", chapter.hidden);
    }
    const noun = count === 1 ? "guarantee" : "guarantees";
    hits.textContent = searching ? `${count} of ${cards.length} guarantees` : `${count} ${noun}`;
    none.hidden = count > 0 || !searching;
  };

  const visible = () => cards.filter((card) => !card.hidden);

  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const card = target?.closest(".guarantee");
    if (!card) return;
    if (card.hidden) {
      query.value = "";
      form.reset();
      show();
    }
    card.open = true;
    target.scrollIntoView();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [first] = visible();
    if (!first) return;
    first.open = true;
    first.querySelector("summary").focus();
  });
  form.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      query.focus();
    } else if (event.key === "Escape" && event.target === query) {
      form.reset();
      show();
    }
  });
  window.addEventListener("hashchange", open);
  window.addEventListener("beforeprint", () => visible().forEach((card) => { card.open = true; }));
  show();
  open();
})();
