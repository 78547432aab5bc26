for(const head of document.querySelectorAll('th[data-sorts]'))head.onclick=()=>{
const table=head.closest('table'),place=[...head.parentNode.children].indexOf(head);
const rows=[...table.tBodies[0].rows];
const value=row=>row.cells[place].dataset.value;
const texts=head.dataset.sorts==='text';
rows.sort((a,b)=>texts?value(a).localeCompare(value(b)):value(b)-value(a));
table.tBodies[0].append(...rows);
for(const other of head.parentNode.children)other.removeAttribute('aria-sort');
head.setAttribute('aria-sort',texts?'ascending':'descending')}
