// The choice of a level.

export async function fillLevels(select) {
  const levels = await (await fetch("levels.json")).json();
  for (const [label, paper] of [["The paper's levels", true], ["More levels", false]]) {
    const group = document.createElement("optgroup");
    group.label = label;
    for (const level of levels.filter((each) => each.paper === paper)) {
      const option = new Option(level.name, level.name);
      option.title = level.task;
      group.append(option);
    }
    select.append(group);
  }
}

export function showTask(select, task) {
  task.textContent = select.selectedOptions[0]?.title ?? "";
}
