// The script of the HTML pages: the filter, the copy buttons. A page without it shows everything.
#pragma once

namespace lockstep {

// The page's policy lets this text run and no other, by its digest.
inline constexpr const char* kHtmlScript = R"js(
'use strict';
(function () {
  const all = (selector) => Array.from(document.querySelectorAll(selector));
  function copied(text) {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    return new Promise((done, failed) => {
      const area = document.createElement('textarea');
      area.value = text;
      document.body.appendChild(area);
      area.select();
      const ok = document.execCommand('copy');
      area.remove();
      ok ? done() : failed();
    });
  }
  all('pre.copy').forEach((block) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'copy';
    button.textContent = 'copy';
    const text = block.textContent;
    button.addEventListener('click', () => {
      const say = (word) => () => { button.textContent = word; };
      copied(text).then(say('copied'), say('press Ctrl-C'));
      setTimeout(() => { button.textContent = 'copy'; }, 1500);
    });
    const holder = document.createElement('div');
    holder.className = 'copied';
    block.parentNode.insertBefore(holder, block);
    holder.append(block, button);
  });
  const bar = document.querySelector('.filter');
  if (!bar) return;
  bar.hidden = false;
  const search = bar.querySelector('input[type=search]');
  const boxes = all('.filter input[type=checkbox]');
  const items = all('[data-verdict]');
  const words = items.map((item) => item.textContent.toLowerCase());
  const kind = items.some((item) => item.tagName === 'TR') ? 'TR' : 'ARTICLE';
  const rows = items.filter((item) => item.tagName === kind).length;
  function apply() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter((word) => word);
    const off = boxes.filter((box) => !box.checked).map((box) => box.value);
    let shown = 0;
    items.forEach((item, i) => {
      const hide = off.includes(item.dataset.verdict) ||
          !wanted.every((word) => words[i].includes(word));
      item.hidden = hide;
      if (!hide && item.tagName === kind) ++shown;
    });
    bar.querySelector('output').textContent =
        shown + ' of ' + rows + (kind === 'TR' ? ' rows' : ' failures');
  }
  search.addEventListener('input', apply);
  boxes.forEach((box) => box.addEventListener('change', apply));
  apply();
})();
)js";

}  // namespace lockstep
