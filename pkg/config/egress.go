// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// MaxPolicy is the maximum number of rules of a policy (--egress). A rule for several
// destinations or ports counts for each of their combinations.
const MaxPolicy = 1024

const (
	auditPrefix = "audit:"
	policyForm  = `an object with the rules, such as {"allow": ["pypi.org:443"]}`
	ruleForm    = `a destination such as "pypi.org:443", or an object with "to" and "ports"`
	portForm    = `a port such as 443, or ports such as "8000-8100"`
)

// Audit returns the file to which a run writes the policy that permits what its program
// reached. It is empty unless the run has --egress audit:FILE.
func (r *Run) Audit() string {
	name, audit := strings.CutPrefix(r.Egress, auditPrefix)
	if !audit {
		return ""
	}
	return name
}

func parseEgress(r *Run, w string) error {
	if r.Egress = w; w == "audit" || w == auditPrefix {
		return fmt.Errorf("%q names no file; expected FILE or audit:FILE", w)
	}
	return nil
}

// readPolicy adds the rules of the policy to the run. Only this function opens the file, so
// later changes of it have no effect.
func (c *Config) readPolicy() error {
	run := &c.Run
	from := func(key string, err error) error { return c.Words[key][0].From.Wrap(err) }
	if run.EgressLog != "" {
		if len(run.Allows) == 0 && run.Egress == "" {
			return from("egress_log", errors.New("there are no decisions to log; add --egress or --allow"))
		}
	}
	if run.Audit() != "" {
		if len(run.Allows) > 0 {
			return from("egress", fmt.Errorf("%s permits everything, so --allow %s has no effect; remove one", run.Egress, run.Allows[0]))
		}
		return nil
	}
	if run.Egress == "" {
		return nil
	}
	text, err := readText(run.Egress)
	if err != nil {
		return from("egress", err)
	}
	rules, err := ParsePolicy(run.Egress, text)
	if err != nil {
		return from("egress", err)
	}
	run.Allows = append(run.Allows, rules...)
	return nil
}

// ParsePolicy parses a policy: JSON with comments and trailing commas, as PolicySchema
// describes it. An error names the file, the line, the path in the file, and the expected
// form.
func ParsePolicy(name string, text []byte) ([]Allow, error) {
	root, err := parseDocument(name, FromFile, policyForm, text)
	if err != nil {
		return nil, err
	}
	members, err := root.members(policyForm)
	if err != nil {
		return nil, err
	}
	var all []Allow
	given := false
	for _, m := range members {
		switch m.name {
		case "$schema": // only editors use this key
			_, err = m.text("the schema's address")
		case "allow":
			given = true
			all, err = m.rules()
		default:
			err = m.errorf("unknown key; %s", suggest.Suggest(m.name, []string{"allow"}, "expected allow"))
		}
		if err != nil {
			return nil, err
		}
	}
	if !given {
		return nil, root.errorf(`the key "allow" is missing; to permit nothing, write {"allow": []}`)
	}
	return all, nil
}

func (n node) rules() ([]Allow, error) {
	var all []Allow
	for _, e := range n.elements() {
		some, err := e.rule()
		if err != nil {
			return nil, err
		}
		if all = append(all, some...); len(all) > MaxPolicy {
			return nil, e.errorf("more than %d rules (each destination counts once for each of its ports); permit networks or *.NAME", MaxPolicy)
		}
	}
	return all, nil
}

// rule reads an element of the policy, which can stand for several rules.
func (n node) rule() ([]Allow, error) {
	if !n.isObject() {
		a, err := n.destination(ruleForm)
		return []Allow{a}, err
	}
	members, err := n.members(ruleForm)
	if err != nil {
		return nil, err
	}
	var to, ports []Allow
	protocol := ""
	var limits Allow
	for _, m := range members {
		switch m.name {
		case "to":
			to, err = list(m.node, func(e node) (Allow, error) { return e.destination(`a name or a network, such as "pypi.org"`) })
		case "ports":
			ports, err = list(m.node, node.ports)
		case "protocol":
			if protocol, err = m.text(`"tcp" or "udp"`); err == nil && protocol != "tcp" && protocol != "udp" && protocol != onlyDNS {
				err = m.expected(`"tcp", "udp" or "dns"`)
			}
		case "connections":
			limits.Connections, err = m.limit("a number from 1", parseConnections)
		case "sent":
			limits.Sent, err = m.limit(`a size such as "10M"`, func(s string) (uint64, error) { return parseSize(s, 1, maxSent) })
		default:
			keys := []string{"to", "ports", "protocol", "connections", "sent"}
			err = m.errorf("unknown key; %s", suggest.Suggest(m.name, keys, "expected "+strings.Join(keys, ", ")))
		}
		if err != nil {
			return nil, err
		}
	}
	if len(to) == 0 {
		return nil, n.errorf(`the key "to" is missing; expected a name or a network`)
	}
	if len(ports) == 0 {
		ports = []Allow{{}}
	}
	var all []Allow
	for _, a := range to {
		for _, p := range ports {
			switch {
			case p.Port != 0 && a.Port != 0:
				return nil, n.errorf("%s has a port already; remove it or the key ports", a)
			case protocol != "" && a.Protocol != "":
				return nil, n.errorf("%s has a protocol already; remove it or the key protocol", a)
			}
			one := a
			if p.Port != 0 {
				one.Port, one.Last = p.Port, p.Last
			}
			if protocol != "" {
				one.Protocol = protocol
			}
			if limits != (Allow{}) && (a.Connections != 0 || a.Sent != 0) {
				return nil, n.errorf("%s has limits already; remove them or the keys connections and sent", a)
			}
			one.Connections, one.Sent = cmp.Or(limits.Connections, a.Connections), cmp.Or(limits.Sent, a.Sent)
			if err := one.check(); err != nil {
				return nil, n.errorf("%s: %w", a, err)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// list reads an array that is not empty, or its only element.
func list(n node, read func(node) (Allow, error)) ([]Allow, error) {
	all := n.elements()
	if len(all) == 0 {
		return nil, n.errorf("%w", errEmptyList)
	}
	var some []Allow
	for _, e := range all {
		a, err := read(e)
		if err != nil {
			return nil, err
		}
		some = append(some, a)
	}
	return some, nil
}

func (n node) destination(form string) (Allow, error) {
	text, err := n.text(form)
	if err != nil {
		return Allow{}, err
	}
	a, err := ParseAllow(text)
	if err != nil {
		err = n.errorf("%w", err)
	}
	return a, err
}

func (n node) limit(form string, parse func(string) (uint64, error)) (limit uint64, err error) {
	text, err := n.textOrNumber(form)
	if err == nil {
		if limit, err = parse(text); err != nil {
			err = n.errorf("%w", err)
		}
	}
	return limit, err
}

func (n node) ports() (a Allow, err error) {
	text, err := n.textOrNumber(portForm)
	if err == nil {
		if a.Port, a.Last, err = parsePorts(text); err != nil {
			err = n.errorf("%w", err)
		}
	}
	return a, err
}

// PolicySchema returns the JSON Schema of a policy (--egress).
func PolicySchema() []byte {
	text := object{"type": "string", "minLength": 1}
	port := object{"anyOf": []object{
		{"type": "integer", "minimum": 1, "maximum": 65535},
		{"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"},
	}}
	rule := object{
		"type": "object", "required": []string{"to"}, "additionalProperties": false,
		"properties": object{
			"to":       object{"description": "names (also *.NAME), addresses and networks, as in --allow", "anyOf": oneOrMore(text, 0)},
			"ports":    object{"description": "a port, or a range such as \"8000-8100\"; without: all except 53 and 853", "anyOf": oneOrMore(port, 0)},
			"protocol": object{"description": "without: tcp and udp; dns: the name only resolves", "enum": []string{"tcp", "udp", onlyDNS}},

			"connections": object{"description": "how many connections (and UDP port pairs) a run may open to each destination and port", "type": "integer", "minimum": 1},
			"sent":        object{"description": "how many bytes it may send on them, such as \"10M\"", "anyOf": []object{{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]+[kKmMgG]?[iI]?[bB]?$"}}},
		},
	}
	anyRule := object{"anyOf": []object{text, rule}}
	schema := object{
		"$schema":              schemaID,
		"title":                "lklrun egress policy",
		"description":          "The destinations that lklrun --egress permits: JSON, with comments and trailing commas. Everything else is refused.",
		"type":                 "object",
		"required":             []string{"allow"},
		"additionalProperties": false,
		"properties": object{
			"$schema": object{"type": "string", "minLength": 1, "description": "address of this schema, for editors"},
			"allow":   object{"description": "the rules", "anyOf": []object{anyRule, {"type": "array", "items": anyRule, "maxItems": MaxPolicy}}},
		},
	}
	return encodeSchema(schema)
}

func encodeSchema(schema object) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
		panic(err) // cannot happen: the schema contains only maps and strings
	}
	return b.Bytes()
}
