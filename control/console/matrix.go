package console

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"isobar.dev/policy"
)

const (
	maxMatrixGroups = 300
	maxPorts        = 16
)

type matrixAnswer struct {
	By      string        `json:"by"`
	Ports   []string      `json:"ports"`
	Groups  []matrixGroup `json:"groups"`
	Cells   []matrixCell  `json:"cells"` // of all pairs of groups, but for what is not seen at either end
	Omitted struct {
		Groups int `json:"groups"`
	} `json:"omitted"`
}

type matrixGroup struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Workloads int    `json:"workloads"`
}

type matrixCell struct {
	From    int `json:"from"` // in Groups
	To      int `json:"to"`
	Pairs   int `json:"pairs"`
	Apart   int `json:"apart"`
	Allowed int `json:"allowed"`
	Denied  int `json:"denied"`
	Partial int `json:"partial"`
	Depends int `json:"depends"`
}

// matrix counts who reaches whom by some ports.
func matrix(ctx context.Context, r *request) (any, error) {
	b, err := r.by()
	if err != nil {
		return nil, err
	}
	flows, ports, err := r.ports()
	if err != nil {
		return nil, err
	}
	w, err := r.reach.of(ctx, r.Snapshot)
	if err != nil {
		return nil, err
	}
	g, err := r.group(ctx, w, b, "", r.text("search"))
	if err != nil {
		return nil, err
	}
	for id := range g.size {
		if !g.found[id] {
			delete(g.size, id)
		}
	}
	out := matrixAnswer{By: b.text, Ports: ports, Groups: []matrixGroup{}, Cells: []matrixCell{}}
	out.Omitted.Groups = g.keep(maxMatrixGroups)
	groups, cells, err := w.Counts(g.end, flows, stopping(ctx))
	if err != nil {
		return nil, errTooMany(err, "search for some of them")
	}
	for i, x := range groups {
		name, _ := b.name(x.Name)
		out.Groups = append(out.Groups, matrixGroup{x.Name, name, x.Ends})
		for k, c := range cells[i] {
			if x.Name == groupHidden && i == k {
				continue
			}
			out.Cells = append(out.Cells, matrixCell{i, k, c.Pairs, c.Apart, c.Allowed, c.Denied, c.Partial, c.Depends})
		}
	}
	return out, nil
}

// ports returns what port= asks about, and what it is called.
func (q query) ports() ([]policy.Flow, []string, error) {
	all := q.all("port")
	if len(all) == 0 || len(all) > maxPorts {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("port: want from 1 to %d of them, as TCP/443", maxPorts))
	}
	var flows []policy.Flow
	var names []string
	for _, text := range all {
		f, name, err := parsePort(text)
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("port=%q: %v", clip(text), err))
		}
		flows, names = append(flows, f), append(names, name)
	}
	return flows, names, nil
}

// parsePort parses PROTO/PORT, ICMP, ICMP/TYPE or ICMP/TYPE/CODE, and IGMP likewise, and returns how
// it is written.
func parsePort(text string) (f policy.Flow, name string, err error) {
	parts := strings.Split(text, "/")
	if f.Protocol, err = policy.ParseProtocol(parts[0]); err != nil {
		return f, "", fmt.Errorf("want PROTO/PORT, ICMP, ICMP/TYPE or ICMP/TYPE/CODE")
	}
	numbers := parts[1:]
	read := func(i, bits int) uint16 {
		if i >= len(numbers) {
			return 0
		}
		n, parseErr := strconv.ParseUint(numbers[i], 10, bits)
		if parseErr != nil && err == nil {
			err = fmt.Errorf("%q: want a number of at most %d", numbers[i], 1<<bits-1)
		}
		return uint16(n)
	}
	switch {
	case f.Protocol.HasPorts():
		f.Port = read(0, 16)
		if err == nil && (f.Port == 0 || len(numbers) != 1) {
			err = fmt.Errorf("%v needs one port from 1 to 65535", f.Protocol)
		}
		name = fmt.Sprintf("%v/%d", f.Protocol, f.Port)
	case len(numbers) > 2:
		err = fmt.Errorf("want %v, %v/TYPE or %v/TYPE/CODE", f.Protocol, f.Protocol, f.Protocol)
	default:
		f.ICMPType, f.ICMPCode = uint8(read(0, 8)), uint8(read(1, 8))
		name = f.Protocol.String()
		for _, n := range []uint8{f.ICMPType, f.ICMPCode}[:len(numbers)] {
			name += fmt.Sprint("/", n)
		}
	}
	return f, name, err
}
