// Questions to the server that this page comes from.

ask.server = async (what, { page, tab, side }, ...rest) => {
  const answer = await fetch(`/${[what, page, tab, side, ...rest].map(encodeURIComponent).join('/')}`);
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
};
