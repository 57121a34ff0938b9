package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"isobar.dev/policy/policytest"
)

// typing types that many letters within one task, so that nothing else of the page gets its turn between two: as in a
// browser that is behind, and gives what is typed precedence.
const typing = `(field, n) => {
	const set = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set;
	field.focus();
	for (let i = 0; i < n; i++) {
		set.call(field, field.value + "x");
		field.dispatchEvent(new InputEvent("input", {bubbles: true, data: "x", inputType: "insertText"}));
	}
	return field.value;
}`

// However fast somebody types, fields take it all, and the page stays.
func TestBurst(t *testing.T) {
	at, code := inside(t, policytest.Town(100))
	p := newTab(t, chromium(t), at)
	p.logIn(code())
	letters := strings.Repeat("x", 240)
	for _, one := range []struct{ path, field string }{
		{"/preview", "main textarea"},
		{"/preview", "main .deletes input"},
		{"/explain", "main .combobox input"},
		{"/map?as=list", "main input[type=search]"},
		{"/matrix", "main input[type=search]"},
		{"/policies", "main input[type=search]"},
		{"/workloads", "main input[type=search]"},
	} {
		p.open(one.path)
		p.await(one.path, settled+` && document.querySelector(`+quoted(one.field)+`) !== null`)
		if got := eval[string](p, "("+typing+")(document.querySelector("+quoted(one.field)+"), 240)"); got != letters {
			t.Errorf("%s, %s: of 240 letters it has taken %d", one.path, one.field, len(got))
		}
		// What has come of it is shown by now, and the field is still what was typed.
		eval[chromedp.Void](p, `new Promise(done => requestAnimationFrame(() => setTimeout(done)))`)
		p.await("what was typed", `document.querySelector(`+quoted(one.field)+`)?.value === `+quoted(letters))
	}
}
