// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// iptables creates rules in a built-in chain with the programs iptables and
// ip6tables. Each rule has the tag as its comment.
type iptables struct{ table, chain string }

// dropTries is the number of attempts to list and delete rules while other
// programs change them.
const dropTries = 3

// rule is the condition of one rule of one family.
type rule struct {
	six  bool
	args []string
}

// rules returns the rules of the set, without the tag.
func (t iptables) rules(s *Set) []rule {
	var all []rule
	for _, l := range s.Links {
		for _, a := range l.Addrs {
			for _, proto := range []string{"tcp", "udp"} {
				for _, p := range s.Ports.ranges() {
					all = append(all, rule{a.Is6(), []string{"-i", l.Device, "-d", a.String(), "-p", proto, "--dport", colon(p)}})
				}
			}
		}
	}
	return all
}

func colon(p [2]uint16) string {
	if p[0] == p[1] {
		return strconv.Itoa(int(p[0]))
	}
	return fmt.Sprintf("%d:%d", p[0], p[1])
}

// insert returns the command line for one rule.
func (t iptables) insert(r rule, tag string) []string {
	return slices.Concat([]string{"-I", t.chain}, r.args, []string{"-m", "comment", "--comment", tag, "-j", "DROP"})
}

func (t iptables) available(ctx context.Context) error {
	// A user who may not use nftables may not use iptables either. Checking
	// nftables first gives the error at once.
	if err := (nft{}).available(ctx); errors.Is(err, unix.EPERM) {
		return fmt.Errorf("iptables: %w: CAP_NET_ADMIN is required", unix.EPERM)
	}
	p, err := findTool(ctx, false)
	if err != nil {
		return err
	}
	if p.nft {
		return nil // it creates any table
	}
	// Even listing a legacy table creates it, and it stays until the
	// network namespace ends. A table that exists is therefore preferred.
	there := legacyTables(false)
	if slices.Contains(there, t.table) || t.table == "raw" && !slices.ContainsFunc(there, legacyCandidate) {
		return nil
	}
	return fmt.Errorf("iptables: %w: no table %s", errLacking, t.table)
}

// legacyCandidate reports whether a method uses the legacy table.
func legacyCandidate(table string) bool {
	return table == "raw" || table == "mangle" || table == "filter"
}

// prepare records the objects that the first rule creates implicitly: with
// iptables on top of nftables, the table and the chain.
func (t iptables) prepare(ctx context.Context, r *Rules) error {
	for _, six := range []bool{false, true} {
		p, err := findTool(ctx, six)
		if err != nil || !p.nft {
			continue // if apply needs this program, it reports the error
		}
		chain, table, err := compatChain(ctx, six, t.table, t.chain)
		if err != nil {
			return err
		}
		if !table {
			r.Made = append(r.Made, familyName(six))
		}
		if !chain {
			r.Made = append(r.Made, familyName(six)+" chain")
		}
	}
	return nil
}

func familyName(six bool) string {
	if six {
		return "ip6"
	}
	return "ip"
}

func (t iptables) apply(ctx context.Context, s *Set) error {
	for _, six := range []bool{false, true} {
		var insert [][]string
		for _, r := range t.rules(s) {
			if r.six == six {
				insert = append(insert, t.insert(r, s.tag()))
			}
		}
		p, err := findTool(ctx, six)
		if errors.Is(err, errLacking) && insert == nil {
			continue
		}
		if err == nil {
			err = t.replace(ctx, p, s.tag(), insert)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replace replaces the rules of one family that have the tag, in one
// transaction.
func (t iptables) replace(ctx context.Context, p *tool, tag string, insert [][]string) error {
	var lines [][]string
	if there, err := t.there(ctx, p); err != nil {
		return err
	} else if there {
		old, err := t.list(ctx, p, tag)
		if err != nil {
			return err
		}
		for _, l := range old {
			lines = append(lines, append([]string{"-D"}, l.words[1:]...))
		}
	}
	if lines = append(lines, insert...); len(lines) == 0 {
		return nil
	}
	return p.restore(ctx, t.table, lines)
}

// listed is a rule that has the tag.
type listed struct {
	words []string // as printed by iptables -S, without the counters
	count Count
}

// list lists the rules of one family that have the tag.
func (t iptables) list(ctx context.Context, p *tool, tag string) ([]listed, error) {
	out, err := p.run(ctx, t.table, "-v", "-S", t.chain)
	if err != nil {
		return nil, err
	}
	return parseRules(out, tag), nil
}

func parseRules(out, tag string) []listed {
	var all []listed
	for line := range strings.Lines(out) {
		// The words of our rules have no spaces. Words with a dot or a
		// colon are quoted.
		words := strings.Fields(strings.ReplaceAll(line, `"`, ""))
		i := slices.Index(words, "--comment")
		if i < 0 || i+1 >= len(words) || words[i+1] != tag || words[0] != "-A" {
			continue
		}
		l := listed{words: words}
		if c := slices.Index(words, "-c"); c >= 0 && c+2 < len(words) {
			l.count.Packets, _ = strconv.ParseUint(words[c+1], 10, 64) // 0 if it is not a number
			l.count.Bytes, _ = strconv.ParseUint(words[c+2], 10, 64)   //
			l.words = slices.Delete(slices.Clone(words), c, c+3)
		}
		all = append(all, l)
	}
	return all
}

func (t iptables) look(ctx context.Context, s *Set) (complete bool, c Count, err error) {
	complete = true
	for _, six := range []bool{false, true} {
		want := 0
		for _, r := range t.rules(s) {
			if r.six == six {
				want++
			}
		}
		if want == 0 {
			continue
		}
		p, err := findTool(ctx, six)
		if err != nil {
			return false, c, err
		}
		rules, err := t.list(ctx, p, s.tag())
		if err != nil {
			return false, c, err
		}
		for _, r := range rules {
			c.add(r.count)
		}
		complete = complete && len(rules) == want
	}
	return complete, c, nil
}

// drop deletes the rules with a tag.
func (t iptables) drop(ctx context.Context, tag string) error {
	var errs []error
	for _, six := range []bool{false, true} {
		p, err := findTool(ctx, six)
		if errors.Is(err, errLacking) {
			continue
		}
		for try := 0; err == nil && try < dropTries; try++ {
			if err = t.replace(ctx, p, tag, nil); err == nil {
				break
			}
			if try < dropTries-1 {
				err = nil // another program has removed a rule in between, so list again
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// there reports whether the chain exists, without creating it.
func (t iptables) there(ctx context.Context, p *tool) (bool, error) {
	if !p.nft {
		return slices.Contains(legacyTables(p.six), t.table), nil
	}
	chain, _, err := compatChain(ctx, p.six, t.table, t.chain)
	return chain, err
}

func (t iptables) remove(ctx context.Context, r *Rules) error {
	errs := []error{t.drop(ctx, r.Tag)}
	for _, six := range []bool{false, true} {
		if slices.Contains(r.Made, familyName(six)+" chain") {
			errs = append(errs, removeCompat(ctx, six, t.table, t.chain, slices.Contains(r.Made, familyName(six))))
		}
	}
	return errors.Join(errs...)
}
