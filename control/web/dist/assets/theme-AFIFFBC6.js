"use strict";(()=>{try{let t=localStorage.getItem("isobar-theme");(t==="light"||t==="dark")&&(document.documentElement.dataset.theme=t)}catch{}})();
