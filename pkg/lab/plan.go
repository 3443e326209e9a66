// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/suggest"
	"github.com/lklrun/lklrun/pkg/config"
	_ "github.com/lklrun/lklrun/pkg/config/types" // registers the interface types
)

// Plan is a topology with all addresses, routes and names. It is pure data.
type Plan struct {
	Name  string        `json:"name"`
	Wires []PlannedWire `json:"wires"`
	Nodes []PlannedNode `json:"nodes"`
	Steps []Step        `json:"steps,omitempty"`
}

// PlannedWire is a wire with its networks and ends.
type PlannedWire struct {
	Name     string         `json:"name"`
	Wire     string         `json:"wire"` // its name for --if wire:NAME
	Networks []netip.Prefix `json:"networks"`
	Settings string         `json:"settings,omitempty"` // impairments, as keys of --if
	Ends     []WireEnd      `json:"ends"`
}

// WireEnd is the interface of a node at a wire.
type WireEnd struct {
	Node      string `json:"node"`
	Interface string `json:"interface"` // eth0
}

// PlannedNode is a node with the flags for lklrun.
type PlannedNode struct {
	Name       string             `json:"name"`
	Instance   string             `json:"instance"`
	Stack      string             `json:"stack"`
	Router     bool               `json:"router,omitempty"`
	Server     bool               `json:"server,omitempty"`
	Interfaces []PlannedInterface `json:"interfaces"`
	Names      []Name             `json:"names"` // for the node's /etc/hosts
	Run        Command            `json:"run,omitempty"`
	NAT        string             `json:"nat,omitempty"`    // rules for nft(8)
	Report     map[string]string  `json:"report,omitempty"` // counters that are results, by name of the result
	Flags      []string           `json:"flags"`            // for lklrun
}

// PlannedInterface is an interface of a node.
type PlannedInterface struct {
	Name      string         `json:"name"` // eth0
	Wire      string         `json:"wire"`
	Addresses []netip.Prefix `json:"addresses"`
	Routes    []Route        `json:"routes,omitempty"`
}

// Route is a route through another node.
type Route struct {
	To     netip.Prefix `json:"to"` // 0.0.0.0/0 is the default route
	Via    netip.Addr   `json:"via"`
	Router string       `json:"router"` // name of the node
}

// Name is a name with its address.
type Name struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"addr"`
}

// planner contains the state of Plan.
type planner struct {
	t     *Topology
	plan  *Plan
	wires map[string]int // index in plan.Wires
	nodes map[string]int // index in plan.Nodes
}

// Plan assigns addresses, routes and names. The result depends only on the
// topology. An error is a *TopologyError.
func (t *Topology) Plan() (*Plan, error) {
	p := &planner{t: t, plan: &Plan{Name: cmp.Or(t.Name, "lab"), Steps: t.Steps}, wires: map[string]int{}, nodes: map[string]int{}}
	for _, step := range []func() error{p.checkNames, p.addNodes, p.addNetworks, p.addAddresses, p.addRoutes, p.addNames, p.addFlags, p.checkSteps} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p.plan, nil
}

// checkName checks a name that becomes part of the names of instances, hosts and
// wires.
func checkName(path, what, name string) error {
	bad := strings.ContainsFunc(name, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' })
	switch {
	case name == "":
		return wrong(path, "the name of the %s is empty", what)
	case len(name) > maxName:
		return wrong(path, "%q has %d characters; the limit for the name of a %s is %d", name, len(name), what, maxName)
	case bad || name[0] == '-' || name[len(name)-1] == '-':
		return wrong(path, "%q is not the name of a %s; expected lower-case letters, digits and '-'", name, what)
	}
	return nil
}

func (p *planner) checkNames() error {
	if err := checkName("name", "lab", p.plan.Name); err != nil {
		return err
	}
	switch n := len(p.t.Nodes); {
	case n == 0:
		return wrong("nodes", "the lab has no nodes; add at least two")
	case n > maxVirtual:
		return wrong("nodes", "%d nodes; the limit in virtual time is %d", n, maxVirtual)
	}
	for _, name := range sorted(p.t.Nodes) {
		path := join("nodes", name)
		if err := checkName(path, "node", name); err != nil {
			return err
		}
		if name == "localhost" {
			return wrong(path, "each node has this name for itself; choose another one")
		}
		n := p.t.Nodes[name]
		switch {
		case len(n.Wires) == 0:
			return wrong(join(path, "wires"), "the node has no wire; add one, such as \"wires\": [\"a\"]")
		case len(n.Wires) > config.MaxInterfaces:
			return wrong(join(path, "wires"), "%d wires; the limit for a node is %d", len(n.Wires), config.MaxInterfaces)
		case n.Server && len(n.Run) == 0:
			return wrong(join(path, "server"), "the node has no program; add \"run\"")
		case cmp.Or(n.Stack, p.t.Stack) == "host":
			return wrong(join(path, "stack"), "a node cannot use the host's kernel; choose another stack, such as vanilla")
		}
	}
	for _, name := range sorted(p.t.Wires) {
		if err := checkName(join("wires", name), "wire", name); err != nil {
			return err
		}
	}
	return nil
}

// addNodes adds the nodes and the wires that they name.
func (p *planner) addNodes() error {
	ends := map[string][]WireEnd{}
	first := map[string]string{} // path of the first end of each wire
	for _, name := range sorted(p.t.Nodes) {
		n := p.t.Nodes[name]
		node := PlannedNode{
			Name: name, Instance: p.plan.Name + "." + name, Stack: cmp.Or(n.Stack, p.t.Stack, config.DefaultStack),
			Router: n.Router, Server: n.Server, Run: n.Run, Report: n.Report,
		}
		for k, e := range n.Wires {
			path := fmt.Sprintf("%s[%d]", join(join("nodes", name), "wires"), k)
			if err := checkName(path, "wire", e.Wire); err != nil {
				return err
			}
			for _, other := range node.Interfaces {
				if other.Wire == e.Wire {
					return wrong(path, "%s is already at this wire with %s", name, other.Name)
				}
			}
			if err := p.checkNAT(e, n, path); err != nil {
				return err
			}
			i := PlannedInterface{Name: "eth" + strconv.Itoa(k), Wire: e.Wire}
			node.Interfaces = append(node.Interfaces, i)
			ends[e.Wire] = append(ends[e.Wire], WireEnd{name, i.Name})
			if first[e.Wire] == "" {
				first[e.Wire] = path
			}
		}
		p.nodes[name] = len(p.plan.Nodes)
		p.plan.Nodes = append(p.plan.Nodes, node)
	}
	for _, name := range sorted(ends) {
		if len(ends[name]) > 1 {
			continue
		}
		var others []string
		for _, other := range sorted(ends) {
			if other != name {
				others = append(others, other)
			}
		}
		return wrong(first[name], "no other node is at wire %q; %s", name, suggest.Suggest(name, others, "add this wire to another node"))
	}
	for _, name := range sorted(p.t.Wires) {
		if len(ends[name]) == 0 {
			return wrong(join("wires", name), "no node is at this wire; %s", suggest.Suggest(name, sorted(ends), "remove it, or add it to nodes"))
		}
	}
	for _, name := range sorted(ends) {
		p.wires[name] = len(p.plan.Wires)
		p.plan.Wires = append(p.plan.Wires, PlannedWire{Name: name, Wire: p.plan.Name + "." + name, Ends: ends[name], Settings: p.t.Wires[name].settings()})
	}
	return nil
}

// settings returns the impairments as keys of --if, without the seed, which
// differs between the ends.
func (w Wire) settings() string {
	var keys []string
	for _, k := range w.keys() {
		keys = append(keys, k.key+"="+k.value)
	}
	return strings.Join(keys, ",")
}

type keyValue struct{ key, value string }

func (w Wire) keys() []keyValue {
	limit := ""
	if w.Limit != 0 {
		limit = strconv.Itoa(w.Limit)
	}
	all := []keyValue{{"delay", w.Delay}, {"jitter", w.Jitter}, {"rate", w.Rate}, {"limit", limit}, {"loss", w.Loss}, {"duplicate", w.Duplicate}, {"reorder", w.Reorder}}
	return slices.DeleteFunc(all, func(k keyValue) bool { return k.value == "" })
}

// random reports whether the wire makes random decisions. It makes none if all
// its values are zeros, such as 0%.
func (w Wire) random() bool {
	return strings.ContainsAny(w.Jitter+w.Loss+w.Duplicate+w.Reorder, "123456789")
}

// addNetworks gives each wire its networks.
func (p *planner) addNetworks() error {
	owners := map[netip.Prefix]string{}
	claim := func(n netip.Prefix, wire string) string {
		for other, owner := range owners {
			if other.Overlaps(n) && owner != wire {
				return owner
			}
		}
		owners[n] = wire
		return ""
	}
	for k := range p.plan.Wires {
		w := &p.plan.Wires[k]
		for n, text := range p.t.Wires[w.Name].Network {
			path := join(join("wires", w.Name), "network")
			if n > 0 {
				path += fmt.Sprintf("[%d]", n)
			}
			prefix, err := netip.ParsePrefix(text)
			switch {
			case err != nil || prefix.Addr().Is4In6() || prefix.Addr().IsMulticast() || prefix.Addr().IsLoopback():
				return wrong(path, "%q; expected the prefix of a network, such as 10.0.1.0/24 or fd00:1::/64", text)
			case prefix != prefix.Masked():
				return wrong(path, "%s has bits set after the prefix; expected %s", text, prefix.Masked())
			case prefix.Addr().Is6() && prefix.Addr().IsLinkLocalUnicast():
				return wrong(path, "%s is link-local; expected a prefix such as fd00:1::/64", text)
			case slices.ContainsFunc(w.Networks, func(o netip.Prefix) bool { return o.Addr().Is4() == prefix.Addr().Is4() }):
				return wrong(path, "%s is the second network of its family; a wire has at most one of each", text)
			case room(prefix) < len(w.Ends):
				return wrong(path, "%s has only %d addresses for %d nodes", text, room(prefix), len(w.Ends))
			}
			if owner := claim(prefix, w.Name); owner != "" {
				return wrong(path, "%s overlaps the network of wire %q", text, owner)
			}
			w.Networks = append(w.Networks, prefix)
		}
	}
	next := netip.MustParsePrefix("10.0.1.0/24")
	for k := range p.plan.Wires {
		w := &p.plan.Wires[k]
		for len(w.Networks) == 0 {
			if claim(next, w.Name) == "" {
				w.Networks = []netip.Prefix{next}
			}
			a := next.Addr().As4()
			if a[2]++; a[2] == 0 {
				a[1]++
			}
			next = netip.PrefixFrom(netip.AddrFrom4(a), 24)
		}
	}
	return nil
}

// room returns the number of addresses for hosts in a network, at most a large
// number.
func room(p netip.Prefix) int {
	bits := p.Addr().BitLen() - p.Bits()
	switch {
	case bits > 16:
		return 1 << 16
	case p.Addr().Is6():
		return 1<<bits - 1 // without the anycast address of routers
	case bits < 2:
		return 1 << bits // RFC 3021
	}
	return 1<<bits - 2
}

// usable reports whether a can be the address of a node in the network p.
func usable(a netip.Addr, p netip.Prefix) bool {
	if !p.Contains(a) {
		return false
	}
	if a.Is4() {
		return p.Bits() >= 31 || a != p.Addr() && a != config.Broadcast(p)
	}
	return p.Bits() == 128 || a != p.Addr()
}

// addAddresses gives each interface its addresses.
func (p *planner) addAddresses() error {
	for k := range p.plan.Wires {
		w := &p.plan.Wires[k]
		taken := map[netip.Addr]string{}
		for _, e := range w.Ends {
			if err := p.fixed(w, e, taken); err != nil {
				return err
			}
		}
		for _, e := range w.Ends {
			i := p.end(e)
			for _, network := range w.Networks {
				if slices.ContainsFunc(i.Addresses, func(a netip.Prefix) bool { return a.Addr().Is4() == network.Addr().Is4() }) {
					continue
				}
				a := network.Addr()
				for !usable(a, network) || taken[a] != "" {
					if a = a.Next(); !network.Contains(a) {
						return wrong(join(join("wires", w.Name), "network"), "%s has no free address for %s", network, e.Node)
					}
				}
				taken[a] = e.Node
				i.Addresses = append(i.Addresses, netip.PrefixFrom(a, network.Bits()))
			}
			slices.SortStableFunc(i.Addresses, func(a, b netip.Prefix) int { return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()) })
		}
	}
	return nil
}

// end returns the interface at an end.
func (p *planner) end(e WireEnd) *PlannedInterface {
	node := &p.plan.Nodes[p.nodes[e.Node]]
	return &node.Interfaces[index(e.Interface)]
}

// index returns the number of an interface.
func index(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "eth"))
	if err != nil {
		panic("lab: interface " + name) // cannot happen: addNodes gives the names
	}
	return n
}

// fixed assigns the addresses that the topology gives.
func (p *planner) fixed(w *PlannedWire, e WireEnd, taken map[netip.Addr]string) error {
	n := index(e.Interface)
	for _, text := range p.t.Nodes[e.Node].Wires[n].IP {
		path := fmt.Sprintf("nodes.%s.wires[%d].ip", e.Node, n)
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return wrong(path, "%q; expected an address without its prefix length, such as 10.0.1.7", text)
		}
		m := slices.IndexFunc(w.Networks, func(o netip.Prefix) bool { return usable(a, o) })
		if m < 0 {
			return wrong(path, "%s is not the address of a node in %s, the network of wire %q; set the wire's \"network\"", text, w.Networks[0], w.Name)
		}
		if owner := taken[a]; owner != "" {
			return wrong(path, "%s is already the address of %s", text, owner)
		}
		i := p.end(e)
		if slices.ContainsFunc(i.Addresses, func(o netip.Prefix) bool { return o.Addr().Is4() == a.Is4() }) {
			return wrong(path, "%s is the second address of its family; remove one", text)
		}
		taken[a] = e.Node
		i.Addresses = append(i.Addresses, netip.PrefixFrom(a, w.Networks[m].Bits()))
	}
	return nil
}

// addFlags adds the flags of lklrun.
func (p *planner) addFlags() error {
	for k := range p.plan.Nodes {
		node := &p.plan.Nodes[k]
		n := p.t.Nodes[node.Name]
		path := join("nodes", node.Name)
		node.Flags = []string{"--no-config", "--quiet", "--name", node.Instance, "--stack", node.Stack}
		if mem := cmp.Or(n.Mem, p.t.Mem); mem != "" {
			if _, err := config.ParseMem(mem); err != nil {
				if n.Mem == "" {
					path = ""
				}
				return wrong(join(path, "mem"), "%w", err)
			}
			node.Flags = append(node.Flags, "--mem", mem)
		}
		resolves := false
		for j := range node.Interfaces {
			spec, err := p.spec(node, j)
			if err != nil {
				return err
			}
			i, err := config.ParseInterface(spec)
			if err != nil {
				return err
			}
			resolves = resolves || len(i.DNS) > 0
			if err := p.addNAT(node, j); err != nil {
				return err
			}
			node.Flags = append(node.Flags, "--if", spec)
		}
		sysctls := map[string]string{}
		if n.Router {
			sysctls["net.ipv4.ip_forward"] = "1"
			sysctls["net.ipv6.conf.all.forwarding"] = "1"
		}
		maps.Copy(sysctls, p.t.Sysctl)
		maps.Copy(sysctls, n.Sysctl)
		for _, name := range slices.Sorted(maps.Keys(sysctls)) {
			if _, err := config.ParseSysctl(name + "=" + sysctls[name]); err != nil {
				at := join(join(path, "sysctl"), name)
				if _, own := n.Sysctl[name]; !own {
					at = join("sysctl", name)
				}
				return wrong(at, "%w", err)
			}
			node.Flags = append(node.Flags, "--sysctl", name+"="+sysctls[name])
		}
		if !resolves { // a query to this address fails at once
			node.Flags = append(node.Flags, "--dns", "127.0.0.1")
		}
		for _, h := range node.Names {
			node.Flags = append(node.Flags, "--add-host", h.Name+"="+h.Addr.String())
		}
	}
	return nil
}

// spec returns the interface of a node in the form of --if.
func (p *planner) spec(node *PlannedNode, j int) (string, error) {
	i := &node.Interfaces[j]
	w, e := p.t.Wires[i.Wire], p.t.Nodes[node.Name].Wires[j]
	var keys []keyValue
	for _, a := range i.Addresses {
		keys = append(keys, keyValue{family("ip", a.Addr()), a.String()})
	}
	for _, r := range i.Routes {
		if r.To.Bits() == 0 {
			keys = append(keys, keyValue{family("gw", r.Via), r.Via.String()})
		} else {
			keys = append(keys, keyValue{"route", r.To.String() + "|" + r.Via.String()})
		}
	}
	if w.MTU != 0 {
		keys = append(keys, keyValue{"mtu", strconv.Itoa(w.MTU)})
	}
	if node.Server {
		keys = append(keys, keyValue{"signal", "on"})
	}
	keys = append(keys, w.keys()...)
	if seed := p.seed(node, i); seed != 0 {
		keys = append(keys, keyValue{"seed", strconv.Itoa(seed)})
	}
	target := "wire:" + p.plan.Wires[p.wires[i.Wire]].Wire
	format := func(keys []keyValue) string {
		spec := target
		for _, k := range keys {
			spec += "," + k.key + "=" + k.value
		}
		return spec
	}
	at := join("wires", i.Wire)
	if err := specError(format(keys), at); err != nil {
		return "", err
	}
	if e.Options == "" {
		return format(keys), nil
	}
	at = fmt.Sprintf("nodes.%s.wires[%d].options", node.Name, j)
	for o := range strings.SplitSeq(e.Options, ",") {
		key, value, given := strings.Cut(o, "=")
		switch {
		case key == "ip" || key == "ip6":
			return "", wrong(at, "%s: use \"ip\" for the address of the node", o)
		case !given:
			value = "on"
		}
		if key != "route" && key != "neigh" && key != "dns" {
			keys = slices.DeleteFunc(keys, func(k keyValue) bool { return k.key == key })
		}
		keys = append(keys, keyValue{key, value})
	}
	return format(keys), specError(format(keys), at)
}

// specError checks an interface in the form of --if. Its error names the key in
// the object of the file.
func specError(spec, at string) error {
	_, err := config.ParseInterface(spec)
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), strconv.Quote(spec)+": ")
	key, rest, ok := strings.Cut(text, ": ")
	if ok && strings.HasPrefix(at, "wires.") {
		return &TopologyError{Path: join(at, key), Err: errors.New(rest)}
	}
	return &TopologyError{Path: at, Err: errors.New(text)}
}

// seed returns the seed of an end. It differs between the ends of a lab, because
// equal seeds would lose the same packets in both directions.
func (p *planner) seed(node *PlannedNode, i *PlannedInterface) int {
	w := p.t.Wires[i.Wire]
	base, n := w.Seed, 0
	if base == 0 {
		if base = p.t.Seed; base == 0 || !w.random() {
			return 0
		}
		for _, other := range p.plan.Wires[:p.wires[i.Wire]] {
			n += len(other.Ends)
		}
	}
	ends := p.plan.Wires[p.wires[i.Wire]].Ends
	return base + n + slices.IndexFunc(ends, func(e WireEnd) bool { return e.Node == node.Name })
}

// family returns the key of the address's family: ip or ip6, gw or gw6.
func family(key string, a netip.Addr) string {
	if a.Is6() {
		return key + "6"
	}
	return key
}

// checkSteps checks the steps of Run.
func (p *planner) checkSteps() error {
	reports := map[string]string{} // path of each result
	for _, name := range sorted(p.t.Nodes) {
		for _, result := range sorted(p.t.Nodes[name].Report) {
			at := join(join(join("nodes", name), "report"), result)
			if err := checkResult(at, result, reports); err != nil {
				return err
			}
		}
	}
	for k, s := range p.t.Steps {
		path := fmt.Sprintf("steps[%d]", k)
		if err := checkReport(s, join(path, "report"), reports); err != nil {
			return err
		}
		runs, sets, waits := s.On != "" || len(s.Run) > 0, s.Wire != "" || s.Set != "", s.Wait != ""
		switch {
		case !runs && !sets && !waits || runs && sets || waits && (runs || sets):
			return wrong(path, `expected "on" and "run", "wire" and "set", or "wait"`)
		case waits && !isTime(s.Wait):
			return wrong(join(path, "wait"), "%q; expected a time such as 30s", s.Wait)
		case s.Timeout != "" && !isTime(s.Timeout):
			return wrong(join(path, "timeout"), "%q; expected a time such as 30s", s.Timeout)
		case waits:
		case sets && (s.Wire == "" || s.Set == ""):
			return wrong(path, `a change of a wire requires both "wire" and "set"`)
		case sets:
			if _, ok := p.wires[s.Wire]; !ok {
				return wrong(join(path, "wire"), "the lab has no wire %q; %s", s.Wire, suggest.Suggest(s.Wire, sorted(p.wires), "it has "+strings.Join(sorted(p.wires), ", ")))
			}
		case s.On == "" || len(s.Run) == 0:
			return wrong(path, `a program requires both "on" and "run"`)
		case s.Background && s.Retry:
			return wrong(path, `"retry" conflicts with "background"; remove one`)
		case s.Expect > 255:
			return wrong(join(path, "expect"), "%d; expected an exit status from 0 to 255", s.Expect)
		default:
			if _, ok := p.nodes[s.On]; !ok {
				return wrong(join(path, "on"), "the lab has no node %q; %s", s.On, suggest.Suggest(s.On, sorted(p.nodes), "it has "+strings.Join(sorted(p.nodes), ", ")))
			}
		}
	}
	return nil
}

// checkResult checks the name of a result, which must be unique in the lab.
func checkResult(at, name string, reports map[string]string) error {
	if first := reports[name]; first != "" {
		return wrong(at, "%q is also the name of a result in %s; rename one", name, first)
	}
	if !varName.MatchString(name) {
		return wrong(at, "%q is not a name; expected letters, digits, '-' and '_'", name)
	}
	reports[name] = at
	return nil
}

// checkReport checks the names of a step's results.
func checkReport(s Step, path string, reports map[string]string) error {
	if len(s.Report) > 0 && len(s.Run) == 0 {
		return wrong(path, `only a program reports results; add "on" and "run"`)
	}
	for n, name := range s.Report {
		if err := checkResult(fmt.Sprintf("%s[%d]", path, n), name, reports); err != nil {
			return err
		}
	}
	return nil
}

func isTime(s string) bool {
	d, err := time.ParseDuration(s)
	return err == nil && d > 0
}

// sorted returns the keys of a map in natural order.
func sorted[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), natural)
}

// natural compares names such that numbers in them are in numeric order: r2
// precedes r10.
func natural(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na == 0 || nb == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(na, nb)); c != 0 {
			return c
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits returns the number of digits at the beginning of s.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
