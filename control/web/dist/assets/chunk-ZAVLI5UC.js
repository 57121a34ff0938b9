var t=new Set;function o(n){t.forEach(e=>e(n))}function i(n){return t.add(n),()=>t.delete(n)}export{o as a,i as b};
