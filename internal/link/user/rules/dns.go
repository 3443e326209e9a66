// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Types of records that a program may query. A server cannot put free text or
// other data into these, except into names.
var queryTypes = map[dnsmessage.Type]bool{
	dnsmessage.TypeA: true, dnsmessage.TypeAAAA: true, dnsmessage.TypeCNAME: true,
	dnsmessage.TypeSRV: true, dnsmessage.TypeSVCB: true, dnsmessage.TypeHTTPS: true,
}

const (
	dnsHeader = 12 // RFC 1035, 4.1.1
	maxChain  = 16 // maximum number of aliases between a name and its addresses
	ednsSize  = 1232
	maxName   = 253
	badQuery  = "the query is malformed"
	wrongType = "only addresses, aliases and services can be queried (types A, AAAA, CNAME, SRV, SVCB, HTTPS)"
)

// Query is a permitted query.
type Query struct {
	Wire []byte // the query for the name server: a new message without other data of the program

	rules    *Rules
	socket   Socket // of the program
	name     string // in lower case, without a final dot
	question dnsmessage.Question
	id       uint16
	original []byte // header and question of the program's query
}

// Query checks a program's query. An audit passes queries on unchanged that rules refuse. It
// returns either a query for the name server, or an answer for the program that refuses the
// query. Both are nil if msg is not a query at all.
func (r *Rules) Query(msg []byte, s Socket) (q *Query, refusal []byte) {
	if len(msg) < dnsHeader || msg[2]&0x80 != 0 {
		return nil, nil
	}
	name, end, ok := questionName(msg)
	switch {
	case r.Audit == nil:
	case ok && len(msg) >= end+4 && queryTypes[dnsmessage.Type(binary.BigEndian.Uint16(msg[end:]))] && !strings.Contains(name, "?"):
	default:
		r.Audit.cannot("a query for the name " + name)
		return &Query{Wire: msg, rules: r}, nil
	}
	if !ok || len(msg) < end+4 || binary.BigEndian.Uint16(msg[4:]) != 1 || msg[2]&0x78 != 0 {
		r.refuseQuery(s, "(malformed query)", badQuery)
		return nil, answer(msg[:dnsHeader], dnsmessage.RCodeFormatError)
	}
	typ := dnsmessage.Type(binary.BigEndian.Uint16(msg[end:]))
	class := dnsmessage.Class(binary.BigEndian.Uint16(msg[end+2:]))
	end += 4
	matching := r.matching(name)
	if len(matching) == 0 || len(name) > maxName || strings.Contains(name, "?") {
		notAllowed := "--allow does not name it"
		if r.Policy {
			notAllowed = "no rule names it"
		}
		r.refuseQuery(s, name, notAllowed)
		return nil, answer(msg[:end], dnsmessage.RCodeNameError)
	}
	if class != dnsmessage.ClassINET || !queryTypes[typ] {
		r.refuseQuery(s, name, wrongType)
		return nil, answer(msg[:end], dnsmessage.RCodeSuccess)
	}
	q = &Query{rules: r, socket: s, name: name, original: msg[:end]}
	if err := q.build(msg, typ); err != nil {
		r.refuseQuery(s, name, badQuery)
		return nil, answer(msg[:dnsHeader], dnsmessage.RCodeFormatError)
	}
	r.ledger.Query(name, "")
	r.log(s, "dns", name, netip.AddrPort{}, matching[0], "")
	return q, nil
}

func (r *Rules) refuseQuery(s Socket, name, reason string) {
	r.ledger.Query(name, reason)
	r.log(s, "dns", name, netip.AddrPort{}, none, reason)
	r.say("refused the name " + name + ": " + reason)
}

// questionName parses the name of the first question, which must not be
// compressed. In the result, characters that no host name contains are replaced.
// end is the offset behind the name.
func questionName(msg []byte) (name string, end int, ok bool) {
	var labels []string
	at := dnsHeader
	for at < len(msg) {
		n := int(msg[at])
		at++
		switch {
		case n == 0:
			return strings.Join(labels, "."), at, true
		case n > 63 || at+n > len(msg) || at+n-dnsHeader > 255:
			return "", 0, false
		}
		label := []byte(strings.ToLower(string(msg[at : at+n])))
		for i, c := range label {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				label[i] = '?' // also a dot, which would look like the end of the label
			}
		}
		labels = append(labels, string(label))
		at += n
	}
	return "", 0, false
}

// build writes the query for the name server. It contains nothing of the
// program's query but the name, the type, and whether the program supports EDNS
// and DNSSEC.
func (q *Query) build(msg []byte, typ dnsmessage.Type) error {
	var id [2]byte
	_, _ = rand.Read(id[:]) // never fails
	q.id = binary.BigEndian.Uint16(id[:])
	name, err := dnsmessage.NewName(q.name + ".")
	if err != nil {
		return err
	}
	q.question = dnsmessage.Question{Name: name, Type: typ, Class: dnsmessage.ClassINET}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: q.id, RecursionDesired: true},
		Questions: []dnsmessage.Question{q.question},
	}
	if dnssec, ok := edns(msg); ok {
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(ednsSize, dnsmessage.RCodeSuccess, dnssec); err != nil {
			return err
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	q.Wire, err = m.Pack()
	return err
}

// edns reports whether a query supports EDNS, and whether it requests DNSSEC.
func edns(msg []byte) (dnssec, ok bool) {
	var m dnsmessage.Message
	if m.Unpack(msg) != nil {
		return false, false
	}
	for _, a := range m.Additionals {
		if a.Header.Type == dnsmessage.TypeOPT {
			return a.Header.DNSSECAllowed(), true
		}
	}
	return false, false
}

// answer builds an answer without records from the header and the question of a
// query.
func answer(query []byte, code dnsmessage.RCode) []byte {
	a := append([]byte(nil), query...)
	a[2] = a[2]&0x01 | 0x80      // QR, RD
	a[3] = 0x80 | byte(code)&0xf // RA
	clear(a[4:dnsHeader])
	if len(a) > dnsHeader {
		a[5] = 1
	}
	return a
}

// Failure returns an answer that reports a failure of the name server.
func (q *Query) Failure() []byte { return answer(q.original, dnsmessage.RCodeServerFailure) }

// IsReplyTo reports whether a message is the name server's answer to this query.
func (q *Query) IsReplyTo(msg []byte) bool {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || !h.Response || h.ID != q.id {
		return false
	}
	question, err := p.Question()
	return err == nil && question.Type == q.question.Type && question.Class == q.question.Class &&
		strings.EqualFold(question.Name.String(), q.question.Name.String()) && binary.BigEndian.Uint16(msg[4:]) == 1
}

// Answer permits the addresses in the name server's answer, and returns the
// answer for the program. If the answer is malformed, no address is permitted.
func (q *Query) Answer(msg []byte) []byte {
	if q.original == nil { // of an audit
		return msg
	}
	if !q.IsReplyTo(msg) {
		return q.Failure()
	}
	// The question has the same length in both messages, so the pointers to its
	// name in the records remain valid.
	a := append([]byte(nil), msg...)
	copy(a[dnsHeader:], q.original[dnsHeader:])
	copy(a[:2], q.original[:2])
	found, err := q.addresses(msg)
	if err != nil {
		return q.Failure()
	}
	if q.rules.Audit != nil && dnsmessage.RCode(msg[3]&0xf) == dnsmessage.RCodeSuccess {
		q.rules.Audit.resolved(q.name)
	}
	for _, f := range found {
		to := f.addr.Unmap()
		reason := q.rules.special(to)
		if reason == "" {
			reason = q.rules.routed("", netip.AddrPort{}, netip.AddrPortFrom(to, 0))
		}
		if reason != "" && q.rules.Audit != nil {
			continue
		}
		if reason != "" {
			q.rules.ledger.Ignore(q.name, to.String())
			q.rules.log(q.socket, "dns", q.name, netip.AddrPortFrom(to, 0), none, reason)
			q.rules.say("ignored the address " + to.String() + " in the answer for " + q.name + ": " + reason)
			continue
		}
		q.rules.grant(to, q.name, f.lifetime)
	}
	return a
}

// found is an address in an answer.
type found struct {
	addr     netip.Addr
	lifetime time.Duration
}

// addresses returns the addresses of the queried name. The answer can contain a
// chain of aliases. Records for names outside the chain are ignored.
func (q *Query) addresses(msg []byte) ([]found, error) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.RCode != dnsmessage.RCodeSuccess {
		return nil, err
	}
	if err := p.SkipAllQuestions(); err != nil {
		return nil, err
	}
	records, err := p.AllAnswers()
	if err != nil {
		return nil, err
	}
	var all []found
	lifetime := mostLifetime
	owner := q.name
	for range maxChain {
		next := ""
		for _, r := range records {
			if r.Header.Class != dnsmessage.ClassINET || canonical(r.Header.Name) != owner {
				continue
			}
			switch b := r.Body.(type) {
			case *dnsmessage.AResource:
				all = append(all, found{netip.AddrFrom4(b.A), min(lifetime, ttl(r.Header.TTL))})
			case *dnsmessage.AAAAResource:
				all = append(all, found{netip.AddrFrom16(b.AAAA), min(lifetime, ttl(r.Header.TTL))})
			case *dnsmessage.CNAMEResource:
				next = canonical(b.CNAME)
				lifetime = min(lifetime, ttl(r.Header.TTL))
			}
		}
		if next == "" || next == owner {
			break
		}
		owner = next
	}
	return all, nil
}

// ttl converts the lifetime of a record (RFC 2181, 8).
func ttl(seconds uint32) time.Duration {
	if seconds > 1<<31-1 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

func canonical(n dnsmessage.Name) string {
	return strings.ToLower(strings.TrimSuffix(n.String(), "."))
}
