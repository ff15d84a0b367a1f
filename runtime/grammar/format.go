package grammar

import (
	"regexp/syntax"
	"strings"
)

const (
	dateForm = `(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))` +
		`|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`
	timeForm  = `(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
	octet     = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv4      = octet + `(?:\.` + octet + `){3}`
	label     = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?`
	hostname  = label + `(?:\.` + label + `){0,3}`
	emailForm = `[A-Za-z0-9_%+-]{1,20}(?:\.[A-Za-z0-9_%+-]{1,20}){0,2}@` + hostname
	h16       = `[0-9a-fA-F]{1,4}`
	// shortURI is for texts of limited length: fewer states, as each is needed once for every length.
	shortURI = `[a-z][a-z0-9+.-]*://[a-z0-9]+(?:[.-][a-z0-9]+)*(?::\d+)?(?:/(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})*)*(?:\?[A-Za-z0-9._~=&-]*)?(?:#[A-Za-z0-9._~-]*)?`
	uriForm  = `[A-Za-z][A-Za-z0-9+.-]{0,20}://[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?)*(?::\d{1,4})?(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?`
)

// formats are the supported values of format as patterns.
var formats = map[string]string{
	"date":      dateForm,
	"time":      timeForm,
	"date-time": dateForm + "T" + timeForm,
	"duration":  `P(?:\d{1,6}W|(?:\d{1,6}Y(?:\d{1,6}M(?:\d{1,6}D)?)?|\d{1,6}M(?:\d{1,6}D)?|\d{1,6}D)(?:T` + clockPart + `)?|T` + clockPart + `)`,
	"uuid":      `[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}`,
	"email":     emailForm,
	"hostname":  hostname,
	"ipv4":      ipv4,
	"ipv6":      ipv6(),
	"uri":       uriForm,
}

const clockPart = `(?:\d{1,6}H(?:\d{1,6}M(?:\d{1,6}S)?)?|\d{1,6}M(?:\d{1,6}S)?|\d{1,6}S)`

// ipv6 lists the addresses of eight groups, one run of them written as "::".
func ipv6() string {
	list := []string{`(?:` + h16 + `:){7}` + h16}
	for before := range 7 {
		s := "::"
		if before > 0 {
			s = h16 + strings.Repeat(":"+h16, before-1) + s
		}
		if after := 6 - before; after > 0 {
			s += `(?:` + h16 + `(?::` + h16 + `){0,` + string(rune('0'+after-1)) + `})?`
		}
		list = append(list, s)
	}
	return `(?:` + strings.Join(list, "|") + `)`
}

// longURI is how long an address may become where a schema limits its length.
const longURI = 250

// extent is how many characters a pattern's texts have, most -1 if there is no limit.
func extent(re *syntax.Regexp) (least, most int) {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune), len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1, 1
	case syntax.OpConcat, syntax.OpCapture:
		for _, sub := range re.Sub {
			lo, hi := extent(sub)
			if least += lo; hi < 0 || most < 0 {
				most = -1
			} else {
				most += hi
			}
		}
		return least, most
	case syntax.OpAlternate:
		least, most = extent(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			lo, hi := extent(sub)
			if least = min(least, lo); hi < 0 || most < 0 {
				most = -1
			} else {
				most = max(most, hi)
			}
		}
		return least, most
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		lo, hi := extent(re.Sub[0])
		from, to := re.Min, re.Max // of OpRepeat
		switch re.Op {
		case syntax.OpStar:
			from, to = 0, -1
		case syntax.OpPlus:
			from, to = 1, -1
		case syntax.OpQuest:
			from, to = 0, 1
		}
		if hi < 0 || to < 0 {
			return lo * from, -1
		}
		return lo * from, hi * to
	}
	return 0, 0 // anchors
}
