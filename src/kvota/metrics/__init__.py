"""Every metric is declared once; decisions are summed up off the loop; series are bounded."""
