// SPDX-License-Identifier: Apache-2.0

//go:build !device

package capture

import (
	"fmt"
	"net"
	"strings"

	"github.com/gopacket/gopacket/layers"
)

// maxAnswers is the maximum number of an answer's records in a line.
const maxAnswers = 4

// dns describes a DNS message in short form.
func (b *text) dns(m *layers.DNS, broken bool) {
	b.add("DNS %d", m.ID)
	if m.OpCode != layers.DNSOpCodeQuery {
		b.add(" %s", words(m.OpCode.String()))
	}
	for _, q := range m.Questions {
		b.add(" %s? %s.", q.Type, printable(string(q.Name)))
	}
	if m.QR {
		switch {
		case m.ResponseCode != layers.DNSResponseCodeNoErr:
			b.add(" %s", m.ResponseCode)
		case len(m.Answers) == 0 && !broken:
			b.WriteString(" no such record")
		}
		var answers []string
		for _, a := range m.Answers {
			answers = append(answers, answer(&a))
		}
		if more := len(answers) - maxAnswers; more > 0 {
			answers = append(answers[:maxAnswers], fmt.Sprintf("and %d more", more))
		}
		if len(answers) > 0 {
			b.WriteString(" is " + strings.Join(answers, ", "))
		}
		if m.TC {
			b.WriteString(", truncated by the server")
		}
	}
	if broken {
		b.cut("dns")
	}
}

func answer(r *layers.DNSResourceRecord) string {
	switch {
	case r.IP != nil:
		return r.IP.String()
	case r.Type == layers.DNSTypeCNAME:
		return "CNAME " + printable(string(r.CNAME)) + "."
	case r.Type == layers.DNSTypePTR:
		return printable(string(r.PTR)) + "."
	case r.Type == layers.DNSTypeNS:
		return printable(string(r.NS)) + "."
	}
	return r.Type.String()
}

// dhcp4 describes a DHCP message by its options (RFC 2132).
func (b *text) dhcp4(m *layers.DHCPv4) {
	kind := "BOOTP " + m.Operation.String()
	var details []string
	for _, o := range m.Options {
		switch {
		case o.Type == layers.DHCPOptMessageType && len(o.Data) == 1:
			kind = "DHCP " + layers.DHCPMsgType(o.Data[0]).String()
		case o.Type == layers.DHCPOptRequestIP && len(o.Data) == 4:
			details = append(details, "wants "+netAddr(o.Data).String())
		case o.Type == layers.DHCPOptServerID && len(o.Data) == 4:
			details = append(details, "server "+netAddr(o.Data).String())
		}
	}
	b.add("%s, client %s, xid %#x", kind, net.HardwareAddr(m.ClientHWAddr), m.Xid)
	for _, a := range []struct {
		what string
		ip   net.IP
	}{{"has", m.ClientIP}, {"gets", m.YourClientIP}, {"relay", m.RelayAgentIP}} {
		if ip := netAddr(a.ip.To4()); ip.IsValid() && !ip.IsUnspecified() {
			b.add(", %s %s", a.what, ip)
		}
	}
	for _, d := range details {
		b.WriteString(", " + d)
	}
}
