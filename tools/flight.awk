# flight.awk: in the SASS of a cubin, registers that wgmma reads as operand A and that something writes before its wait.
# Fails if there are any.
/Function :/ { kernel = $NF; split("", flight) }
/^[ \t]*\/\*[0-9a-f]+\*\// {
	at = $1
	sub(/^[ \t]*\/\*[0-9a-f]+\*\/[ \t]*/, "")
	sub(/;.*/, "")
	text = $0
	sub(/^@!?U?P[0-9T]+[ \t]+/, "")
	n = split($0, w, /[ ,\t]+/)
	if (w[1] ~ /^HGMMA/ && w[3] ~ /^R[0-9]+$/) { for (i = 0; i < 4; i++) flight[substr(w[3], 2) + i]; next }
	if (w[1] ~ /^WARPGROUP.DEPBAR/) { split("", flight); next }
	if (w[1] ~ /^(ST|RED|ATOMS|SYNCS|R2UR|LDGSTS|LDGDEPBAR)/) next
	i = 2; while (i < n && w[i] ~ /^!?U?P[0-9T]$/) i++
	if (w[i] !~ /^R[0-9]+$/) next
	many = w[1] ~ /\.128|\.M88\.4|^HMMA/ ? 4 : w[1] ~ /\.64|WIDE|^CS2R/ ? 2 : 1
	for (j = 0; j < many; j++) if ((substr(w[i], 2) + j) in flight) {
		print kernel " at " at ": " text " writes what wgmma still reads"; bad = 1; split("", flight); break
	}
}
END { exit bad }
