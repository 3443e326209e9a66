// SPDX-License-Identifier: Apache-2.0

package sockfilter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// conditions lists the words that can start a condition, for error messages.
const conditions = `a condition (dst, src, dport, sport, dev), "not" or "("`

// Parse parses a filter, whose words may be separate arguments or parts of one. An error
// names the wrong word and what was expected there.
func Parse(words []string) (*Filter, error) {
	p := &parser{words: split(words), filter: &Filter{}}
	for {
		word, _ := p.peek()
		add := word == "state"
		if !add && word != "exclude" && word != "excl" {
			break
		}
		p.next++
		name, ok := p.peek()
		if !ok {
			return nil, fmt.Errorf("%q: expected a state after it: %s", word, strings.Join(States(), ", "))
		}
		p.next++
		if err := p.filter.states.set(name, add); err != nil {
			return nil, err
		}
	}
	if _, more := p.peek(); !more {
		return p.filter, nil
	}
	t, err := p.list()
	if err != nil {
		return nil, err
	}
	if word, more := p.peek(); more { // only ")" ends a list
		return nil, fmt.Errorf("%q: there is no matching \"(\"", word)
	}
	p.filter.test = t
	return p.filter, nil
}

type parser struct {
	words  []string
	next   int
	depth  int
	filter *Filter
}

// split splits arguments into words: at blanks, and around parentheses, which do not
// occur in addresses.
func split(args []string) []string {
	var words []string
	for _, arg := range args {
		arg = strings.NewReplacer("(", " ( ", ")", " ) ").Replace(arg)
		words = append(words, strings.Fields(arg)...)
	}
	return words
}

func (p *parser) peek() (word string, ok bool) {
	if p.next < len(p.words) {
		return p.words[p.next], true
	}
	return "", false
}

// list parses conditions up to the end or a ")".
func (p *parser) list() (test, error) {
	t, err := p.condition()
	for err == nil {
		word, more := p.peek()
		if !more || word == ")" {
			return t, nil
		}
		combine := test.and
		switch word {
		case "and", "&", "&&":
			p.next++
		case "or", "|", "||":
			combine = test.or
			p.next++
		}
		var u test
		if u, err = p.condition(); err == nil {
			t = combine(t, u)
		}
	}
	return nil, err
}

// deepest limits the nesting of parentheses and negations.
const deepest = 100

func (p *parser) condition() (test, error) {
	word, ok := p.peek()
	if !ok {
		if p.next == 0 {
			return nil, errors.New("the filter is empty; expected " + conditions)
		}
		return nil, fmt.Errorf("the filter ends after %q; expected %s", p.words[p.next-1], conditions)
	}
	p.next++
	if p.depth++; p.depth > deepest {
		return nil, fmt.Errorf("%q: more than %d nested parentheses and negations", word, deepest)
	}
	defer func() { p.depth-- }()
	switch word {
	case "not", "!":
		t, err := p.condition()
		if err != nil {
			return nil, err
		}
		return t.not(), nil
	case "(":
		t, err := p.list()
		if err != nil {
			return nil, err
		}
		if _, ok := p.peek(); !ok {
			return nil, errors.New(`"(": missing ")"`)
		}
		p.next++
		return t, nil
	case "dst", "src", "dport", "sport", "dev":
		return p.comparison(word)
	case "state", "exclude", "excl":
		return nil, fmt.Errorf("%q: must precede all conditions", word)
	case "autobound", "fwmark", "cgroup":
		return nil, fmt.Errorf("%q: only ss has this condition; use lklctl exec -- ss", word)
	}
	return nil, fmt.Errorf("%q; expected %s", word, conditions)
}

// operators are ss's names for the six comparisons.
var operators = map[string]string{
	"=": "=", "==": "=", "eq": "=", "!=": "!=", "ne": "!=", "neq": "!=",
	">": ">", "gt": ">", "<": "<", "lt": "<", ">=": ">=", "ge": ">=", "geq": ">=", "<=": "<=", "le": "<=", "leq": "<=",
}

// comparison parses the rest of a condition after its first word.
func (p *parser) comparison(what string) (test, error) {
	op := "="
	word, ok := p.peek()
	if o, is := operators[word]; ok && is {
		op = o
		p.next++
		behind := word
		if word, ok = p.peek(); !ok {
			return nil, fmt.Errorf("%q ends after %q; expected %s", what, behind, operand[what])
		}
	}
	if !ok {
		return nil, fmt.Errorf("the filter ends after %q; expected %s", what, operand[what])
	}
	p.next++
	var t test
	var err error
	switch what {
	case "dport", "sport":
		return p.port(what == "sport", op, word)
	case "dst", "src":
		t, err = host(what == "src", word)
	case "dev":
		t, err = p.device(word)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %q; expected %s", what, word, operand[what])
	}
	switch op {
	case "=":
		return t, nil
	case "!=":
		return t.not(), nil
	}
	return nil, fmt.Errorf("%s %s: only ports can be compared by order; expected = or !=", what, op)
}

// operand describes the operand of each condition, for messages.
var operand = map[string]string{
	"dst":   "ADDRESS[/BITS][:PORT], such as 10.0.0.0/8, [::1]:80 or :443",
	"src":   "ADDRESS[/BITS][:PORT], such as 10.0.0.0/8, [::1]:80 or :443",
	"dport": "a port from 0 to 65535 or a service of /etc/services, such as :443 or :https",
	"sport": "a port from 0 to 65535 or a service of /etc/services, such as :443 or :https",
	"dev":   "the name or the number of an interface, such as eth0",
}

// device implements ss's meaning of dev: the interface that the socket is bound to.
func (p *parser) device(word string) (test, error) {
	if n, err := strconv.ParseUint(word, 0, 31); err == nil {
		return func(s *sockdiag.Socket) bool { return s.IfIndex == int(n) }, nil
	}
	if word == ")" || word == "(" {
		return nil, errors.New("no name")
	}
	p.filter.devices = append(p.filter.devices, word)
	return func(s *sockdiag.Socket) bool { return s.IfIndex != 0 && s.Iface == word }, nil
}
