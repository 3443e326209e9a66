// SPDX-License-Identifier: Apache-2.0

//go:build !device

package capture

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/gopacket/gopacket/layers"
)

// keyDigits is the number of hexadecimal digits shown of a key, an HMAC or a
// random number: a whole token, or half of a key.
const keyDigits = 8

// resetReasons are the reasons of RFC 8684, section 3.6.
var resetReasons = [...]string{
	"unspecified error", "MPTCP-specific error", "lack of resources", "administratively prohibited",
	"too much outstanding data", "unacceptable performance", "middlebox interference",
}

// mptcpOption describes an MPTCP option with its name from RFC 8684, section 3.
// gopacket has decoded it and checked its length.
func mptcpOption(o *layers.TCPOption, t *layers.TCP) string {
	switch {
	case o.OptionMPTCPMpCapable != nil:
		return mpCapable(o)
	case o.OptionMPTCPMpJoin != nil:
		return mpJoin(o, t)
	case o.OptionMPTCPDss != nil:
		return dss(o)
	case o.OptionMPTCPAddAddr != nil:
		a := o.OptionMPTCPAddAddr
		text := fmt.Sprintf("ADD_ADDR id %d %s", a.AddrID, netAddr(a.Address))
		if a.Port != 0 {
			text += fmt.Sprintf(" port %d", a.Port)
		}
		if len(a.SendHMAC) > 0 {
			text += " hmac " + short(a.SendHMAC)
		}
		if a.E {
			text += " echo"
		}
		return text
	case o.OptionMTCPRemAddr != nil:
		ids := make([]string, len(o.OptionMTCPRemAddr.AddrIDs))
		for i, id := range o.OptionMTCPRemAddr.AddrIDs {
			ids[i] = fmt.Sprint(id)
		}
		return "REMOVE_ADDR id " + strings.Join(ids, " ")
	case o.OptionMPTCPMpPrio != nil:
		text := "MP_PRIO no backup"
		if o.OptionMPTCPMpPrio.Backup {
			text = "MP_PRIO backup"
		}
		if o.OptionLength == layers.OptionLenMpPrioAddr { // only in version 0, RFC 6824
			text += fmt.Sprintf(" id %d", o.OptionMPTCPMpPrio.AddrID)
		}
		return text
	case o.OptionMTCPMPFail != nil:
		return fmt.Sprintf("MP_FAIL seq %d", o.OptionMTCPMPFail.DSN)
	case o.OptionMTCPMPFastClose != nil:
		return "MP_FASTCLOSE key " + short(o.OptionMTCPMPFastClose.ReceivKey)
	case o.OptionMPTCPMPTcpRst != nil:
		r := o.OptionMPTCPMPTcpRst
		text := fmt.Sprintf("MP_TCPRST reason %d", r.Reason)
		if int(r.Reason) < len(resetReasons) {
			text += " (" + resetReasons[r.Reason] + ")"
		}
		if r.T {
			text += " transient"
		}
		return text
	}
	return fmt.Sprintf("subtype %d %#x", uint8(o.OptionMultipath), o.OptionData)
}

func mpCapable(o *layers.TCPOption) string {
	c := o.OptionMPTCPMpCapable
	text := fmt.Sprintf("MP_CAPABLE v%d", c.Version)
	var flags string
	for i, on := range []bool{c.A, c.B, c.C, c.D, c.E, c.F, c.G, c.H} {
		if on {
			flags += string(rune('A' + i))
		}
	}
	if flags != "" {
		text += " flags [" + flags + "]"
	}
	switch {
	case len(c.ReceivKey) > 0:
		text += fmt.Sprintf(" keys %s %s", short(c.SendKey), short(c.ReceivKey))
	case len(c.SendKey) > 0:
		text += " key " + short(c.SendKey)
	}
	if o.OptionLength >= layers.OptionLenMpCapableAckData {
		text += fmt.Sprintf(" len %d", c.DataLength)
	}
	if o.OptionLength == layers.OptionLenMpCapableAckDataCSum {
		text += fmt.Sprintf(" csum 0x%04x", c.Checksum)
	}
	return text
}

func mpJoin(o *layers.TCPOption, t *layers.TCP) string {
	j := o.OptionMPTCPMpJoin
	text := "MP_JOIN"
	if o.OptionLength != layers.OptionLenMpJoinAck {
		text += fmt.Sprintf(" id %d", j.AddrID)
	}
	switch o.OptionLength {
	case layers.OptionLenMpJoinSyn:
		text += fmt.Sprintf(" token %08x nonce 0x%08x", j.ReceivToken, j.SendRandNum)
	case layers.OptionLenMpJoinSynAck:
		text += fmt.Sprintf(" hmac %s nonce 0x%08x", short(j.SendHMAC), j.SendRandNum)
	default:
		text += " hmac " + short(j.SendHMAC)
	}
	if j.Backup && t.SYN { // the third packet has no such flag
		text += " backup"
	}
	return text
}

func dss(o *layers.TCPOption) string {
	d := o.OptionMPTCPDss
	text := "DSS"
	if len(d.DataAck) > 0 {
		text += fmt.Sprintf(" ack %d", sequence(d.DataAck))
	}
	if d.M {
		text += fmt.Sprintf(" seq %d subseq %d len %d", sequence(d.DSN), d.SSN, d.DataLength)
		if d.DataLength == 0 { // RFC 8684, section 3.7
			text += " (infinite mapping)"
		}
		// The checksum is present if the option is two bytes longer
		// than its other fields.
		if int(o.OptionLength) == 4+len(d.DataAck)+len(d.DSN)+layers.OptionLenDssSSN+layers.OptionLenDssDataLen+layers.OptionLenDssCSum {
			text += fmt.Sprintf(" csum 0x%04x", d.Checksum)
		}
	}
	if d.F {
		text += " DATA_FIN"
	}
	return text
}

// sequence reads a data sequence number of 4 or 8 bytes.
func sequence(b []byte) uint64 {
	if len(b) == 4 {
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

// short formats the beginning of a key or an HMAC.
func short(b []byte) string {
	if len(b)*2 <= keyDigits {
		return fmt.Sprintf("0x%x", b)
	}
	return fmt.Sprintf("0x%x..", b[:keyDigits/2])
}
